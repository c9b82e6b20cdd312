import type { Schemas } from "@matchday/client";
import { useEffect, useRef, useState } from "react";
import { matchday } from "../session/session.ts";
import { type Answer, useAnswer } from "../ui/answer.ts";
import { dayOf } from "../ui/time.ts";
import { utcDays } from "./days.ts";

export type Match = Schemas["Event"];
export type Own = Map<number, Schemas["OwnPrediction"]>;
export interface Filter {
  tournament_id?: number;
  team_id?: number;
}

const perPage = 30;
/** How long the next page may take, with all tries, in milliseconds. */
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
  answer: Answer<Pages>;
  hasMore: boolean;
  isLoadingMore: boolean;
  moreError: unknown;
  more: () => void;
}

/** The matches of one state, page by page. A reload loads as many pages again as were shown. */
export function useMatchList(status: Schemas["EventStatus"], filter: Filter): MatchList {
  const query = { ...filter, status };
  const key = JSON.stringify(query);
  const shownPages = useRef(1);
  const [isLoadingMore, setLoadingMore] = useState(false);
  const [failure, setFailure] = useState<{ key: string; error: unknown }>();
  // A page of another filter may fail after the fan has left that filter.
  const moreError = failure?.key === key ? failure.error : undefined;
  const answer = useAnswer<Pages>(
    async (signal, before) => {
      const numbers = Array.from({ length: before?.loaded ?? 1 }, (_, index) => index + 1);
      const pages = await Promise.all(numbers.map((number) => page(query, number, signal)));
      // The fan may have scrolled on meanwhile: what they see must not get shorter.
      while (shownPages.current > pages.length) pages.push(await page(query, pages.length + 1, signal));
      const last = pages[0]?.meta.last_page ?? 1;
      const matches = pages.flatMap(({ data }) => data);
      return { query: key, matches, loaded: Math.min(pages.length, Math.max(1, last)), last };
    },
    [query],
    "matches",
  );
  const { data } = answer;
  useEffect(() => {
    shownPages.current = data?.loaded ?? 1;
  }, [data]);
  async function more() {
    if (!data || isLoadingMore) return;
    setLoadingMore(true);
    setFailure(undefined);
    const loaded = data.loaded + 1;
    try {
      // A request that hangs must not keep the list from growing.
      const next = await page(query, loaded, AbortSignal.timeout(longestWait));
      answer.change((all) =>
        // The fan may have chosen another filter meanwhile.
        all.query === key && all.loaded + 1 === loaded
          ? { ...all, matches: [...all.matches, ...next.data], loaded, last: next.meta.last_page }
          : all,
      );
    } catch (error) {
      setFailure({ key, error });
    }
    setLoadingMore(false);
  }
  return { answer, hasMore: data !== undefined && data.loaded < data.last, isLoadingMore, moreError, more };
}

/** All matches of one local day; nothing is asked without a day. */
export function useDay(day: string | undefined, filter: Filter): Answer<Match[]> {
  return useAnswer<Match[]>(
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

/** All predictions of the fan, by match: only with all of them it is known which matches have none. */
export function useOwnPredictions(): Answer<Own> {
  return useAnswer<Own>(
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
