import type { Schemas } from "@matchday/client";
import { dayOf, nameOfDay } from "../ui/time.ts";

type Match = Schemas["Event"];
export interface Group {
  tournament: Schemas["EventTournament"];
  matches: Match[];
}
export interface Day {
  key: string;
  name: string;
  groups: Group[];
}

/** A match that started longer ago than this and has no result is no longer upcoming. The service's list agrees. */
const stale = 3 * 3_600_000;
const at = (match: Match) => Date.parse(match.start_time);
const rising = (one: Match, other: Match) => at(one) - at(other) || one.id - other.id;

/** The matches by state. A match moves as soon as the stream reports its new state, before the lists are loaded again. */
export function byState(matches: Match[], now = new Date()) {
  const sorted = [...new Map(matches.map((match) => [match.id, match])).values()].sort(rising);
  const scheduled = sorted.filter(({ status }) => status === "scheduled");
  const isUpcoming = (match: Match) => at(match) > now.getTime() - stale;
  return {
    /** The latest start first. */
    live: sorted.filter(({ status }) => status === "live").reverse(),
    /** The nearest first. */
    upcoming: scheduled.filter(isUpcoming),
    /** Postponed, cancelled, or waiting for a result; the latest first. */
    withoutResult: scheduled.filter((match) => !isUpcoming(match)).reverse(),
    /** The latest first. */
    results: sorted.filter(({ status }) => status === "finished").reverse(),
  };
}

/** Matches by the local day on which they start, and within a day by tournament. Both keep the order of the matches. */
export function byDay(matches: Match[], now = new Date()): Day[] {
  const days: Day[] = [];
  for (const match of matches) {
    const key = dayOf(match.start_time);
    let day = days.at(-1);
    if (day?.key !== key) {
      day = { key, name: nameOfDay(match.start_time, now), groups: [] };
      days.push(day);
    }
    let group = day.groups.find(({ tournament }) => tournament.id === match.tournament.id);
    if (!group) {
      group = { tournament: match.tournament, matches: [] };
      day.groups.push(group);
    }
    group.matches.push(match);
  }
  return days;
}

/** The UTC days that a local day touches: the service's filter is by UTC day. */
export function utcDays(day: string): string[] {
  const [year = 0, month = 1, date = 1] = day.split("-").map(Number);
  const ends = [new Date(year, month - 1, date), new Date(year, month - 1, date, 23, 59, 59)];
  return [...new Set(ends.map((moment) => moment.toISOString().slice(0, 10)))];
}
