import { type DependencyList, useEffect, useRef, useState } from "react";
import { type Resource, useResource } from "./resource.ts";

/** Timeout in milliseconds for the next page, including retries. */
const longestWait = 20_000;

interface Loaded<T> {
  data: T[];
  meta: { next_cursor: string | null; total: number };
}

interface Items<T> {
  items: T[];
  total: number;
  /** Cursor after the last item; `null` at the end of the list. */
  cursor: string | null;
}

export interface CursorList<T> {
  resource: Resource<Items<T>>;
  isLoadingMore: boolean;
  moreError: unknown;
  more: () => void;
}

/** A list that is loaded page by page. A reload fetches all items that were shown. */
export function useCursorList<T>(
  load: (cursor: string | null, signal: AbortSignal) => Promise<Loaded<T>>,
  idOf: (item: T) => number | string,
  dependencies: DependencyList,
  cacheAs: string,
): CursorList<T> {
  const shown = useRef(0);
  const [isLoadingMore, setLoadingMore] = useState(false);
  const [moreError, setMoreError] = useState<unknown>();
  // An item can move to the next page between two requests.
  const joined = (items: T[], next: T[]) => {
    const known = new Set(items.map(idOf));
    return [...items, ...next.filter((item) => !known.has(idOf(item)))];
  };
  const resource = useResource<Items<T>>(
    async (signal) => {
      const first = await load(null, signal);
      let items = first.data;
      let cursor = first.meta.next_cursor;
      while (cursor !== null && items.length < shown.current) {
        const next = await load(cursor, signal);
        items = joined(items, next.data);
        cursor = next.meta.next_cursor;
      }
      return { items, total: first.meta.total, cursor };
    },
    dependencies,
    cacheAs,
  );
  const { data } = resource;
  useEffect(() => {
    shown.current = data?.items.length ?? 0;
  }, [data]);
  async function more() {
    const cursor = data?.cursor ?? null;
    if (cursor === null || isLoadingMore) return;
    setLoadingMore(true);
    setMoreError(undefined);
    try {
      const next = await load(cursor, AbortSignal.timeout(longestWait));
      resource.change((list) =>
        // A reload may have replaced the list since the request started.
        list.cursor === cursor
          ? { ...list, items: joined(list.items, next.data), cursor: next.meta.next_cursor }
          : list,
      );
    } catch (error) {
      setMoreError(error);
    }
    setLoadingMore(false);
  }
  return { resource, isLoadingMore, moreError, more };
}
