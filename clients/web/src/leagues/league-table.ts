import type { Schemas } from "@matchday/client";
import { useEffect, useRef, useState } from "react";
import { matchday } from "../session/session.ts";
import { type Resource, useResource } from "../ui/resource.ts";

export type Row = Schemas["LeagueTableRow"];

const perPage = 50;
/** Timeout in milliseconds for the next page, including retries. */
const longestWait = 20_000;

type Table = Schemas["LeagueTableData"] & {
  meta: Schemas["LeagueTableMeta"];
  /** Cursor after the last row; `null` at the end of the table. */
  cursor: string | null;
};

export interface LeagueTable {
  resource: Resource<Table>;
  isLoadingMore: boolean;
  moreError: unknown;
  more: () => void;
}

/** Table of a league, page by page. A reload fetches all rows that were shown. */
export function useLeagueTable(league: number, round?: number): LeagueTable {
  const shownRows = useRef(0);
  const [isLoadingMore, setLoadingMore] = useState(false);
  const [moreError, setMoreError] = useState<unknown>();
  const page = (cursor: string | null, signal: AbortSignal) => {
    const query = { per_page: perPage, ...(round !== undefined && { round }), ...(cursor !== null && { cursor }) };
    return matchday.get("/api/auth/leagues/{league}/table", { params: { path: { league }, query }, signal });
  };
  const resource = useResource<Table>(
    async (signal) => {
      const { data, meta } = await page(null, signal);
      let { rows } = data;
      let cursor = meta.next_cursor;
      while (cursor !== null && rows.length < shownRows.current) {
        const next = await page(cursor, signal);
        rows = withRows(rows, next.data.rows);
        cursor = next.meta.next_cursor;
      }
      return { ...data, rows, meta, cursor };
    },
    [league, round ?? null],
    "league table",
  );
  const { data } = resource;
  useEffect(() => {
    shownRows.current = data?.rows.length ?? 0;
  }, [data]);
  async function more() {
    const cursor = data?.cursor ?? null;
    if (cursor === null || isLoadingMore) return;
    setLoadingMore(true);
    setMoreError(undefined);
    try {
      const next = await page(cursor, AbortSignal.timeout(longestWait));
      resource.change((table) =>
        // A reload may have replaced the table since the request started.
        table.cursor === cursor
          ? { ...table, rows: withRows(table.rows, next.data.rows), cursor: next.meta.next_cursor }
          : table,
      );
    } catch (error) {
      setMoreError(error);
    }
    setLoadingMore(false);
  }
  return { resource, isLoadingMore, moreError, more };
}

/** A member can move to the next page between two requests. */
function withRows(rows: Row[], next: Row[]): Row[] {
  const known = new Set(rows.map(({ user }) => user.id));
  return [...rows, ...next.filter(({ user }) => !known.has(user.id))];
}
