import type { Schemas } from "@matchday/client";
import { useEffect, useRef, useState } from "react";
import { matchday } from "../session/session.ts";
import { type Resource, useResource } from "../ui/resource.ts";
import { dayOf } from "../ui/time.ts";
import { utcDays } from "./days.ts";

export type Match = Schemas["Event"];
export type Own = Map<number, Schemas["OwnPrediction"]>;
export interface Filter {
  tournament_id?: number;
  team_id?: number;
}

const perPage = 30;
/** Timeout in milliseconds for the next page, including retries. */
const longestWait = 20_000;
interface Pages {
  query: string;
  matches: Match[];
  loaded: number;
  last: number;
}

async function page(
  query: Filter & { status?: Schemas["EventStatus"]; date?: string },
  page: number,
  signal?: AbortSignal,
) {
  const params = { query: { ...query, page, per_page: perPage } };
  return matchday.get("/api/auth/events", { params, ...(signal && { signal }) });
}

export interface MatchList {
  resource: Resource<Pages>;
  hasMore: boolean;
  isLoadingMore: boolean;
  moreError: unknown;
  more: () => void;
}

/** Matches of one state, page by page. A reload fetches all pages that were shown. */
export function useMatchList(status: Schemas["EventStatus"], filter: Filter): MatchList {
  const query = { ...filter, status };
  const key = JSON.stringify(query);
  const shownPages = useRef(1);
  const [loadingKey, setLoadingKey] = useState<string>();
  const [failure, setFailure] = useState<{ key: string; error: unknown }>();
  // A request for another filter may still be in progress, or fail, after the fan has changed the filter.
  const isLoadingMore = loadingKey === key;
  const moreError = failure?.key === key ? failure.error : undefined;
  const resource = useResource<Pages>(
    async (signal, before) => {
      const numbers = Array.from({ length: before?.loaded ?? 1 }, (_, index) => index + 1);
      const pages = await Promise.all(numbers.map((number) => page(query, number, signal)));
      // The fan may have loaded more pages since the request started. The list must not become shorter.
      while (shownPages.current > pages.length) pages.push(await page(query, pages.length + 1, signal));
      const last = pages[0]?.meta.last_page ?? 1;
      const matches = pages.flatMap(({ data }) => data);
      return { query: key, matches, loaded: Math.min(pages.length, Math.max(1, last)), last };
    },
    [query],
    "matches",
  );
  const { data } = resource;
  useEffect(() => {
    shownPages.current = data?.loaded ?? 1;
  }, [data]);
  async function more() {
    if (!data || isLoadingMore) return;
    setLoadingKey(key);
    setFailure(undefined);
    const loaded = data.loaded + 1;
    try {
      // A request that hangs must not block the list.
      const next = await page(query, loaded, AbortSignal.timeout(longestWait));
      resource.change((all) =>
        // The fan may have changed the filter since the request started.
        all.query === key && all.loaded + 1 === loaded
          ? { ...all, matches: [...all.matches, ...next.data], loaded, last: next.meta.last_page }
          : all,
      );
    } catch (error) {
      setFailure({ key, error });
    }
    setLoadingKey((current) => (current === key ? undefined : current));
  }
  return { resource, hasMore: data !== undefined && data.loaded < data.last, isLoadingMore, moreError, more };
}

/** All matches of one local day. Without a day, no request is sent. */
export function useDay(day: string | undefined, filter: Filter): Resource<Match[]> {
  return useResource<Match[]>(
    async (signal) => {
      if (day === undefined) return [];
      const days = await Promise.all(utcDays(day).map((date) => allPages({ ...filter, date }, signal)));
      return days.flat().filter(({ start_time }) => dayOf(start_time) === day);
    },
    [day, filter],
    "day",
  );
}

async function allPages(query: Filter & { date: string }, signal: AbortSignal): Promise<Match[]> {
  const all: Match[] = [];
  for (let number = 1; ; number += 1) {
    const { data, meta } = await page(query, number, signal);
    all.push(...data);
    if (number >= meta.last_page) return all;
  }
}

/** All predictions of the fan, by match. Complete, because the list also marks matches without a prediction. */
export function useOwnPredictions(): Resource<Own> {
  return useResource<Own>(
    async (signal) => {
      const own: Own = new Map();
      for (let cursor: string | undefined; ; ) {
        const query = { per_page: 100, ...(cursor !== undefined && { cursor }) };
        const { data, meta } = await matchday.get("/api/auth/predictions", { params: { query }, signal });
        for (const prediction of data) own.set(prediction.event_id, prediction);
        if (meta.next_cursor == null) return own;
        cursor = meta.next_cursor;
      }
    },
    [],
    "own predictions",
  );
}
