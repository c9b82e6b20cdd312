import { type RoundFilter, useRounds } from "./use-rounds.ts";

interface Props {
  tournaments: number[];
  /** Matches that count; all without it. */
  filter?: RoundFilter;
  round: number | undefined;
  /** Path of the table of all rounds. That of a round is below it. */
  all: string;
  choose: (path: string) => void;
}

/** Selects a round of the tournaments. Hidden if their matches have no rounds. */
export function RoundSelect({ tournaments, filter, round, all, choose }: Props) {
  const loaded = useRounds(tournaments, filter);
  // The current round is shown until the others are loaded.
  const rounds = loaded ?? (round === undefined ? [] : [{ round, name: `Round ${round}` }]);
  if (rounds.length === 0) return null;
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
