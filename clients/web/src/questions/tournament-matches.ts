import type { Schemas } from "@matchday/client";
import { matchday, onSessionEnd } from "../session/session.ts";
import { allPages } from "../ui/pages.ts";
import { type Resource, useResource } from "../ui/resource.ts";

export type Match = Schemas["Event"];
export type Team = Schemas["EventTeam"];

/** Milliseconds for which the matches of a tournament are kept. Their teams hardly ever change. */
const lifetime = 300_000;
/** Matches by tournament. The questions of a page share one request. */
const known = new Map<number, { at: number; matches: Promise<Match[]> }>();
onSessionEnd.add(() => known.clear());

/** Matches of a tournament. Without one, no request is sent. */
export function useTournamentMatches(tournament: number | undefined): Resource<Match[]> {
  return useResource<Match[]>(
    async () => (tournament === undefined ? [] : matchesOf(tournament)),
    [tournament],
    "tournament matches",
  );
}

function matchesOf(tournament: number): Promise<Match[]> {
  const existing = known.get(tournament);
  if (existing && Date.now() - existing.at < lifetime) return existing.matches;
  const matches = allPages((page) =>
    matchday.get("/api/auth/events", { params: { query: { tournament_id: tournament, page, per_page: 100 } } }),
  );
  known.set(tournament, { at: Date.now(), matches });
  matches.catch(() => known.delete(tournament));
  return matches;
}

/** Teams of the matches, by name. */
export function teamsOf(matches: Pick<Match, "home_team" | "away_team">[]): Team[] {
  const teams = new Map(matches.flatMap(({ home_team, away_team }) => [home_team, away_team]).map((t) => [t.id, t]));
  return [...teams.values()].sort((one, other) => one.name.localeCompare(other.name, "en"));
}
