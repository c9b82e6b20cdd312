import type { Schemas } from "@matchday/client";
import { timeOfDay } from "../ui/time.ts";

type Match = Pick<Schemas["Event"], "status" | "status_detail" | "start_time">;

/** How a match stands, in a word or two. */
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

/** Whether it can be predicted, as far as this device's clock can tell; the service has the last word. */
export function isOpen(match: Match, now = Date.now()): boolean {
  return match.status_detail === "scheduled" && Date.parse(match.start_time) > now;
}

type Said = Pick<Schemas["Prediction"], "prediction" | "score_prediction" | "confidence">;

/** What somebody said of a match. */
export function said(prediction: Said, home: string, away: string): string {
  const { home: h, away: a } = prediction.score_prediction ?? {};
  const who = { home, draw: "Draw", away }[prediction.prediction];
  const score = h === undefined ? "" : ` ${h}–${a}`;
  return `${who}${score}${prediction.confidence ? `, ${prediction.confidence} %` : ""}`;
}

/** Points with their sign. */
export function signed(points: number): string {
  return points > 0 ? `+${points}` : points < 0 ? `−${-points}` : "0";
}
