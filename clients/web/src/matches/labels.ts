import type { Schemas } from "@matchday/client";
import { timeOfDay } from "../ui/time.ts";

type Match = Pick<Schemas["Event"], "status" | "status_detail" | "start_time">;

/** Short label for the state of a match. */
export function stateLabel(match: Match): string {
  switch (match.status_detail) {
    case "scheduled":
      return timeOfDay(match.start_time);
    case "live":
      return "Live";
    case "finished":
      return "Full time";
    default:
      return capitalised(match.status_detail);
  }
}

/** Stages whose label differs from their slug, and stages of a season, where the round says more. */
const stages: Record<string, string> = {
  group: "Group stage",
  last_16: "Round of 16",
  last_32: "Round of 32",
  quarter_final: "Quarter-final",
  quarter_finals: "Quarter-final",
  semi_final: "Semi-final",
  semi_finals: "Semi-final",
  third_place: "Third-place match",
  league: "",
  league_stage: "",
  regular_season: "",
};

/** Label of a stage: "Quarter-final" for `quarter_final`. */
export function stageName(stage: string): string {
  return stages[stage] ?? capitalised(stage.replaceAll(/[_-]+/g, " ").trim());
}

type Placed = Pick<Schemas["Event"], "round" | "stage" | "is_knockout">;

/** Place of a match in its tournament: "Final", "Round 7" or "Group stage, round 2"; `undefined` if unknown. */
export function stageLabel({ round, stage, is_knockout }: Placed): string | undefined {
  const name = stage ? stageName(stage) : "";
  if (round == null || (name && is_knockout)) return name || undefined;
  return name ? `${name}, round ${round}` : `Round ${round}`;
}

/** No team advances from a final, so the same field names the team that wins it. */
export const isFinal = ({ stage }: Pick<Placed, "stage">): boolean => stage === "final";

/** Effect of a multiplier, as in "Final: points count double". */
export function multiplierText(multiplier: number): string {
  const factors: Record<number, string> = { 2: "double", 3: "triple" };
  return `points count ${factors[multiplier] ?? `${multiplier} times`}`;
}

export const capitalised = (text: string): string => text.replace(/^./u, (letter) => letter.toUpperCase());

/** Whether the match is open for predictions by this device's clock. The service has the final say. */
export function isOpen(match: Match, now = Date.now()): boolean {
  return match.status_detail === "scheduled" && Date.parse(match.start_time) > now;
}

/** Points gained or lost, with a sign. */
export function signed(points: number): string {
  return points > 0 ? `+${points}` : points < 0 ? `−${-points}` : "0";
}

/** Number with thousands separators and a typographic minus sign. */
export function formatNumber(number: number): string {
  return number.toLocaleString("en").replace("-", "−");
}

/** Number with its noun: "1 member", "1,200 members". */
export function counted(number: number, noun: string): string {
  return `${formatNumber(number)} ${noun}${number === 1 ? "" : "s"}`;
}

const ordinals = new Intl.PluralRules("en", { type: "ordinal" });
const endings: Record<string, string> = { one: "st", two: "nd", few: "rd", other: "th" };

/** Rank in words: "1st", "22nd". */
export function ordinal(number: number): string {
  return `${formatNumber(number)}${endings[ordinals.select(number)]}`;
}

/** Whole percentages that add up to 100 (largest remainder method), or all 0 if the total is 0. */
export function percentages(counts: number[]): number[] {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return counts.map(() => 0);
  const exact = counts.map((count) => (count / total) * 100);
  const whole = exact.map(Math.floor);
  let missing = 100 - whole.reduce((sum, part) => sum + part, 0);
  const byRemainder = exact.map((_, index) => index).sort((a, b) => rest(b) - rest(a) || a - b);
  for (const index of byRemainder) {
    if (missing-- > 0) whole[index] = (whole[index] ?? 0) + 1;
  }
  return whole;

  function rest(index: number): number {
    return (exact[index] ?? 0) - (whole[index] ?? 0);
  }
}
