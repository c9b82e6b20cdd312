import type { Schemas } from "@matchday/client";

export type Scores = Pick<Schemas["StreamMatch"], "home_score" | "away_score">;
type Update = Scores & Pick<Schemas["StreamMatch"], "status" | "status_detail" | "changed">;

/** Title of the announcement of a change; `undefined` if it is not announced. `before` is the last known score. */
export function titleOf(match: Update, before: Scores | undefined): string | undefined {
  if (match.changed.includes("status")) {
    if (match.status_detail === "live") return "Kick-off";
    if (match.status_detail === "finished") return "Full time";
    return undefined;
  }
  if (!match.changed.includes("score")) return undefined;
  if (match.status === "finished") return "Score corrected";
  if (before === undefined) return "Goal";
  const home = (match.home_score ?? 0) - (before.home_score ?? 0);
  const away = (match.away_score ?? 0) - (before.away_score ?? 0);
  if (home >= 0 && away >= 0) return "Goal";
  return home > 0 || away > 0 ? "Score corrected" : "Goal disallowed";
}
