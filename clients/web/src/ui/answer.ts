import { type DependencyList, useCallback, useEffect, useRef, useState } from "react";
import { endings } from "../session/session.ts";
import { reloads } from "./refresh.ts";

/** A request to the service: under way, answered or failed. */
export interface Answer<T> {
  data: T | undefined;
  error: unknown;
  reload: () => void;
  /** Changes the data that is shown, after a live event or an action of the fan. */
  change: (how: (data: T) => T) => void;
}

/** Answers that a page shows at once when the fan comes back to it. They are loaded again in any case. */
const kept = new Map<string, unknown>();
endings.add(() => kept.clear());

/**
 * Asks the service when the page appears, when a dependency changes, when the device is online again, when the fan returns
 * to the tab, and when another tab changed something. With `keepAs` the last answer is shown meanwhile.
 */
export function useAnswer<T>(
  ask: (signal: AbortSignal, before: T | undefined) => Promise<T>,
  dependencies: DependencyList,
  keepAs?: string,
): Answer<T> {
  const key = JSON.stringify(dependencies);
  const place = keepAs && `${keepAs} ${key}`;
  const keptData = () => (place === undefined ? undefined : (kept.get(place) as T | undefined));
  const [data, setData] = useState(keptData);
  const [error, setError] = useState<unknown>();
  const [round, setRound] = useState(0);

  // An answer to another question must not be shown, not even for a moment.
  const [askedFor, setAskedFor] = useState(key);
  if (askedFor !== key) {
    setAskedFor(key);
    setData(keptData);
    setError(undefined);
  }
  const latest = useRef(data);
  useEffect(() => {
    latest.current = data;
    if (place !== undefined && data !== undefined) kept.set(place, data);
  }, [place, data]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: `ask` is a new function each time; the caller names what matters
  useEffect(() => {
    const stop = new AbortController();
    ask(stop.signal, latest.current).then(
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
  useEffect(() => {
    reloads.add(reload);
    return () => {
      reloads.delete(reload);
    };
  }, [reload]);
  const change = useCallback((how: (data: T) => T) => {
    setData((data) => (data === undefined ? data : how(data)));
  }, []);
  return { data, error, reload, change };
}
