// Compiled, never run: what the compiler must refuse.
import type { Matchday, StreamEvent } from "../src/index.js";

export async function refused(matchday: Matchday, event: StreamEvent) {
  // @ts-expect-error: there is no such path
  await matchday.get("/api/auth/nothing");
  // @ts-expect-error: it is not asked for by GET
  await matchday.get("/api/auth/daily-coins");
  // @ts-expect-error: which one is missing
  await matchday.get("/api/auth/events/{event}");
  // @ts-expect-error: it has no such filter value
  await matchday.get("/api/auth/events", { params: { query: { status: "lost" } } });
  // @ts-expect-error: the match is missing
  await matchday.post("/api/auth/predictions", { body: { prediction: "home" } });
  // @ts-expect-error: nobody wins like that
  await matchday.post("/api/auth/predictions", { body: { event_id: 1, prediction: "both" } });

  const { data } = await matchday.get("/api/auth/events/{event}", { params: { path: { event: 1 } } });
  const name: string = data.home_team.name;
  // @ts-expect-error: a match that has not begun has no score
  const goals: number = data.home_score;
  if (event.kind === "tally") return event.data.prediction_distribution.home;
  // @ts-expect-error: other kinds have no tally
  return [name, goals, event.data.prediction_distribution];
}
