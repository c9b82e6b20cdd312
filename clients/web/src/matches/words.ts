import type { Schemas } from "@matchday/client";
import { timeOfDay } from "../ui/time.ts";

type Match = Pick<Schemas["Event"], "status" | "status_detail" | "start_time">;

/** The state of a match in a word or two. */
export function standing(match: Match): string {
  switch (match.status_detail) {
    case "scheduled":
      return timeOfDay(match.start_time);
    case "live":
      return "Live";
    case "finished":
      return "Full time";
    default:
      return match.status_detail.replace(/^./, (letter) => letter.toUpperCase());
  }
}

/** Whether the match can be predicted, by this device's clock; the service decides. */
export function isOpen(match: Match, now = Date.now()): boolean {
  return match.status_detail === "scheduled" && Date.parse(match.start_time) > now;
}

/** Points gained or lost, always with a sign. */
export function signed(points: number): string {
  return points > 0 ? `+${points}` : points < 0 ? `−${-points}` : "0";
}

/** A number with a typographic minus sign, if it needs one. */
export function signedPlain(number: number): string {
  return number.toLocaleString("en").replace("-", "−");
}

/** Whole percentages that add up to 100, by the largest remainder; all 0 if there is nothing to divide. */
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
