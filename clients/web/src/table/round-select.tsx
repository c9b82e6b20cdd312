import { matchday } from "../session/session.ts";
import { allPages } from "../ui/pages.ts";
import { useResource } from "../ui/resource.ts";
import { roundsOf } from "./rounds.ts";

interface Props {
  tournament: number;
  round: number | undefined;
  choose: (path: string) => void;
}

/** Selects a round of a tournament. Hidden if its matches have no rounds. */
export function RoundSelect({ tournament, round, choose }: Props) {
  const { data } = useResource(
    async (signal) => {
      const query = { tournament_id: tournament, per_page: 100 };
      return roundsOf(
        await allPages((page) => matchday.get("/api/auth/events", { params: { query: { ...query, page } }, signal })),
      );
    },
    [tournament],
    "rounds",
  );
  // The current round is shown until the others are loaded.
  const rounds = data ?? (round === undefined ? [] : [{ round, name: `Round ${round}` }]);
  if (rounds.length === 0) return null;
  const all = `/table/tournament/${tournament}`;
  const path = (round: number) => `${all}/round/${round}`;
  return (
    <label className="scope">
      <span className="unseen">Round</span>
      <select
        className="select"
        value={round === undefined ? all : path(round)}
        onChange={(event) => choose(event.target.value)}
      >
        <option value={all}>All rounds</option>
        {rounds.map(({ round, name }) => (
          <option key={round} value={path(round)}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
