// Compiled but never run: calls that the compiler must reject.
import type { Matchday, StreamEvent } from "../src/index.js";

export async function rejected(matchday: Matchday, event: StreamEvent) {
  // @ts-expect-error: unknown path
  await matchday.get("/api/auth/nothing");
  // @ts-expect-error: the path has no GET method
  await matchday.get("/api/auth/daily-coins");
  // @ts-expect-error: the path parameter is missing
  await matchday.get("/api/auth/events/{event}");
  // @ts-expect-error: unknown value of the filter
  await matchday.get("/api/auth/events", { params: { query: { status: "lost" } } });
  // @ts-expect-error: `event_id` is missing
  await matchday.post("/api/auth/predictions", { body: { prediction: "home" } });
  // @ts-expect-error: unknown outcome
  await matchday.post("/api/auth/predictions", { body: { event_id: 1, prediction: "both" } });

  const { data } = await matchday.get("/api/auth/events/{event}", { params: { path: { event: 1 } } });
  const name: string = data.home_team.name;
  // @ts-expect-error: the score is null before kick-off
  const goals: number = data.home_score;
  if (event.kind === "tally") return event.data.prediction_distribution.home;
  // @ts-expect-error: only tallies have a distribution
  return [name, goals, event.data.prediction_distribution];
}
