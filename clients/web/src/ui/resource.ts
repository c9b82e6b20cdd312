import { type DependencyList, useCallback, useEffect, useRef, useState } from "react";
import { onSessionEnd } from "../session/session.ts";
import { reloads } from "./refresh.ts";

/** Data that is loaded from the service, or the error. Both are `undefined` while it loads. */
export interface Resource<T> {
  data: T | undefined;
  error: unknown;
  reload: () => void;
  /** Updates the data locally, after a live event or an action of the fan. */
  change: (how: (data: T) => T) => void;
}

/** Data of earlier requests. A page shows it immediately when the fan returns, and reloads it. */
const cache = new Map<string, unknown>();
onSessionEnd.add(() => cache.clear());

/**
 * Loads data when the component is mounted, when a dependency changes, when the device is back online, when the fan returns
 * to the tab, and when another tab reports a change. With `cacheAs`, the last data is shown until the response arrives.
 */
export function useResource<T>(
  load: (signal: AbortSignal, before: T | undefined) => Promise<T>,
  dependencies: DependencyList,
  cacheAs?: string,
): Resource<T> {
  const key = JSON.stringify(dependencies);
  const cacheKey = cacheAs && `${cacheAs} ${key}`;
  const cached = () => (cacheKey === undefined ? undefined : (cache.get(cacheKey) as T | undefined));
  const [data, setData] = useState(cached);
  const [error, setError] = useState<unknown>();
  const [round, setRound] = useState(0);

  // Data of the previous dependencies must not be shown, even for one render.
  const [loadedKey, setLoadedKey] = useState(key);
  if (loadedKey !== key) {
    setLoadedKey(key);
    setData(cached);
    setError(undefined);
  }
  const latest = useRef(data);
  useEffect(() => {
    latest.current = data;
    if (cacheKey !== undefined && data !== undefined) cache.set(cacheKey, data);
  }, [cacheKey, data]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: `load` is a new function each time; the caller lists the dependencies
  useEffect(() => {
    const stop = new AbortController();
    load(stop.signal, latest.current).then(
      (data) => {
        if (stop.signal.aborted) return;
        setData(data);
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
