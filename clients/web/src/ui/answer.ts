import { type DependencyList, useCallback, useEffect, useState } from "react";

/** What was asked of the service: on its way, here, or refused. */
export interface Answer<T> {
  data: T | undefined;
  error: unknown;
  reload: () => void;
  /** Changes what is here, after something was heard or done. */
  change: (how: (data: T) => T) => void;
}

/** Asks the service when the page appears and whenever one of the dependencies is another one. */
export function useAnswer<T>(ask: (signal: AbortSignal) => Promise<T>, dependencies: DependencyList): Answer<T> {
  const [data, setData] = useState<T>();
  const [error, setError] = useState<unknown>();
  const [round, setRound] = useState(0);

  // What was asked for something else must not be shown for this, not even for a moment.
  const key = JSON.stringify(dependencies);
  const [askedFor, setAskedFor] = useState(key);
  if (askedFor !== key) {
    setAskedFor(key);
    setData(undefined);
    setError(undefined);
  }

  // biome-ignore lint/correctness/useExhaustiveDependencies: `ask` is another function each time; the caller names what matters
  useEffect(() => {
    const stop = new AbortController();
    ask(stop.signal).then(
      (answer) => {
        if (stop.signal.aborted) return;
        setData(answer);
        setError(undefined);
      },
      (error) => !stop.signal.aborted && setError(error),
    );
    return () => stop.abort();
  }, [key, round]);

  const reload = useCallback(() => {
    setError(undefined);
    setRound((round) => round + 1);
  }, []);
  const change = useCallback((how: (data: T) => T) => {
    setData((data) => (data === undefined ? data : how(data)));
  }, []);
  return { data, error, reload, change };
}
