import type { StreamEvent } from "@matchday/client";
import { useEffect, useRef } from "react";
import { useLive } from "../live/live.tsx";

/** Milliseconds after events that are sent when all scores are complete. The service keeps a table for a second. */
const afterScores = [1_200];
/** Milliseconds after a result. Fans who did not predict the match get no later event, and scores need some seconds. */
const afterResult = [3_000, 10_000, 30_000];
/** Longest random addition in milliseconds, so that the fans of a match do not all reload at once. */
const spread = 800;

/** Calls `reload` after live events that change league tables. `isAffected` selects the events. */
export function useScoreChanges(reload: () => void, isAffected: (event: StreamEvent) => boolean = () => true): void {
  const timers = useRef(new Map<number, ReturnType<typeof setTimeout>>());
  useLive((event) => {
    const delays = delaysAfter(event);
    if (delays.length === 0 || !isAffected(event)) return;
    for (const delay of delays) {
      clearTimeout(timers.current.get(delay));
      timers.current.set(delay, setTimeout(reload, delay + Math.random() * spread));
    }
  });
  useEffect(() => {
    const { current } = timers;
    return () => {
      for (const timer of current.values()) clearTimeout(timer);
    };
  }, []);
}

function delaysAfter({ kind }: StreamEvent): number[] {
  switch (kind) {
    case "result":
      return afterResult;
    case "rank":
    case "round":
    case "league.rank":
    case "reset":
      return afterScores;
    default:
      return [];
  }
}
