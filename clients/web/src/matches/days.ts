import type { Schemas } from "@matchday/client";
import { dayOf, nameOfDay } from "../ui/time.ts";

type Match = Schemas["Event"];
export interface Day {
  key: string;
  name: string;
  matches: Match[];
}

/** Matches by the day on which they begin where the device is: those to come, the nearest first, and those that are
 * over, the latest first. */
export function byDay(matches: Match[], now = new Date()): { live: Match[]; toCome: Day[]; over: Day[] } {
  const at = (match: Match) => Date.parse(match.start_time);
  const rising = [...matches].sort((one, other) => at(one) - at(other) || one.id - other.id);
  return {
    live: rising.filter(({ status }) => status === "live"),
    toCome: days(
      rising.filter(({ status }) => status === "scheduled"),
      now,
    ),
    over: days(rising.filter(({ status }) => status === "finished").reverse(), now),
  };
}

function days(matches: Match[], now: Date): Day[] {
  const days: Day[] = [];
  for (const match of matches) {
    const key = dayOf(match.start_time);
    if (days.at(-1)?.key !== key) days.push({ key, name: nameOfDay(match.start_time, now), matches: [] });
    days.at(-1)?.matches.push(match);
  }
  return days;
}
