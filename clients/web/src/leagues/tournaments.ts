import type { Schemas } from "@matchday/client";
import { matchday } from "../session/session.ts";
import { allPages } from "../ui/pages.ts";
import { type Resource, useResource } from "../ui/resource.ts";

export interface Playable {
  id: number;
  name: string;
  /** Start of the next match; `undefined` if all are over. */
  next: string | undefined;
}

/** Tournaments with matches. The tournament with the next match comes first, finished tournaments last. */
export function usePlayableTournaments(): Resource<Playable[]> {
  return useResource(
    async (signal) => {
      const tournaments = await allPages((page) =>
        matchday.get("/api/auth/tournaments", { params: { query: { page, per_page: 100 } }, signal }),
      );
      const first = await Promise.all(
        tournaments.map(async ({ id }) => {
          // Live matches come first in the list, then the next ones, then the latest results.
          const query = { tournament_id: id, per_page: 1 };
          return (await matchday.get("/api/auth/events", { params: { query }, signal })).data[0];
        }),
      );
      return playable(tournaments, first);
    },
    [],
    "playable tournaments",
  );
}

type Match = Pick<Schemas["Event"], "status" | "start_time">;

/** Combines each tournament with the first match of its list. */
export function playable(tournaments: { id: number; name: string }[], first: (Match | undefined)[]): Playable[] {
  return tournaments
    .flatMap(({ id, name }, index) => {
      const match = first[index];
      return match ? [{ id, name, next: match.status === "finished" ? undefined : match.start_time }] : [];
    })
    .sort(
      (one, other) =>
        (one.next ? Date.parse(one.next) : Infinity) - (other.next ? Date.parse(other.next) : Infinity) || 0,
    );
}
