import { matchday } from "../session/session.ts";
import { allPages } from "../ui/pages.ts";
import { useResource } from "../ui/resource.ts";
import { type Round, roundsOf } from "./rounds.ts";

/** Matches that count in a league. */
export interface RoundFilter {
  from_round: number | null;
  from: string | null;
}

/** Rounds of these tournaments; `undefined` until they are loaded. */
export function useRounds(tournaments: number[], filter?: RoundFilter): Round[] | undefined {
  const { data } = useResource(
    async (signal) => {
      const load = (tournament_id: number) =>
        allPages((page) => {
          const query = { tournament_id, page, per_page: 100 };
          return matchday.get("/api/auth/events", { params: { query }, signal });
        });
      const matches = (await Promise.all(tournaments.map(load))).flat();
      const { from_round = null, from = null } = filter ?? {};
      return roundsOf(
        matches.filter(
          ({ round, start_time }) =>
            (from_round === null || (round ?? 0) >= from_round) &&
            (from === null || Date.parse(start_time) >= Date.parse(from)),
        ),
      );
    },
    [tournaments, filter ?? null],
    "rounds",
  );
  return data;
}
