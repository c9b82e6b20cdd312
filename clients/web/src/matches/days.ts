import type { Schemas } from "@matchday/client";
import { dayOf, nameOfDay } from "../ui/time.ts";
import { stageLabel } from "./labels.ts";

type Match = Schemas["Event"];
export interface Group {
  tournament: Schemas["EventTournament"];
  /** Stage or round of its matches. */
  stage: string | undefined;
  multiplier: number;
  matches: Match[];
}
export interface Day {
  key: string;
  name: string;
  groups: Group[];
}

/** A scheduled match is no longer upcoming this long after its start time. The service uses the same limit. */
const stale = 3 * 3_600_000;
const at = (match: Match) => Date.parse(match.start_time);
const rising = (one: Match, other: Match) => at(one) - at(other) || one.id - other.id;

/** Groups matches by state. A match changes its group when the stream reports it, before the lists are reloaded. */
export function byState(matches: Match[], now = new Date()) {
  const sorted = [...new Map(matches.map((match) => [match.id, match])).values()].sort(rising);
  const scheduled = sorted.filter(({ status }) => status === "scheduled");
  const isUpcoming = (match: Match) => at(match) > now.getTime() - stale;
  return {
    /** Latest start first. */
    live: sorted.filter(({ status }) => status === "live").reverse(),
    /** Earliest start first. */
    upcoming: scheduled.filter(isUpcoming),
    /** Postponed, cancelled or awaiting a result; latest start first. */
    withoutResult: scheduled.filter((match) => !isUpcoming(match)).reverse(),
    /** Latest start first. */
    results: sorted.filter(({ status }) => status === "finished").reverse(),
  };
}

/** Groups matches by local start day and then by tournament, stage and multiplier, in the order of the matches. */
export function byDay(matches: Match[], now = new Date()): Day[] {
  const days: Day[] = [];
  for (const match of matches) {
    const key = dayOf(match.start_time);
    let day = days.at(-1);
    if (day?.key !== key) {
      day = { key, name: nameOfDay(match.start_time, now), groups: [] };
      days.push(day);
    }
    const stage = stageLabel(match);
    const { tournament, multiplier } = match;
    const isOf = (one: Group) =>
      one.tournament.id === tournament.id && one.stage === stage && one.multiplier === multiplier;
    let group = day.groups.find(isOf);
    if (!group) {
      group = { tournament, stage, multiplier, matches: [] };
      day.groups.push(group);
    }
    group.matches.push(match);
  }
  return days;
}

/** Returns the UTC days that a local day overlaps, because the service filters by UTC day. */
export function utcDays(day: string): string[] {
  const [year = 0, month = 1, date = 1] = day.split("-").map(Number);
  const ends = [new Date(year, month - 1, date), new Date(year, month - 1, date, 23, 59, 59)];
  return [...new Set(ends.map((moment) => moment.toISOString().slice(0, 10)))];
}
