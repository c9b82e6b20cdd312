import type { CursorList } from "./cursor-list.ts";
import { errorMessage } from "./states.tsx";

/** Loads the next page of a list. Hidden at its end. */
export function More<T>({ list }: { list: CursorList<T> }) {
  const hasMore = (list.resource.data?.cursor ?? null) !== null;
  return (
    <>
      {hasMore && (
        <button type="button" className="button quiet more" onClick={list.more} disabled={list.isLoadingMore}>
          {list.isLoadingMore ? "Loading…" : "Show more"}
        </button>
      )}
      {list.moreError !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(list.moreError)}
        </p>
      )}
    </>
  );
}
