import type { Schemas } from "@matchday/client";
import { standing } from "../matches/words.ts";
import { Crest } from "../ui/crest.tsx";
import { nameOfDay, timeOfDay, until } from "../ui/time.ts";

/** How a match stands. */
export function Scoreboard({ match }: { match: Schemas["Event"] }) {
  const hasScore = match.home_score != null && match.away_score != null;
  const soon = until(match.start_time);
  return (
    <section className="board scoreboard on-pitch" aria-label="Score">
      <p className="board-top">
        <span className={match.status === "live" ? "tag live" : undefined}>
          {match.status_detail === "scheduled" ? nameOfDay(match.start_time) : standing(match)}
        </span>
        <span>
          {match.tournament.name} · {match.venue}
        </span>
      </p>
      <p className="board-team">
        <Crest team={match.home_team} size={72} />
        <span>{match.home_team.name}</span>
      </p>
      {hasScore ? (
        <p className="board-middle board-score numbers">
          <span key={`home ${match.home_score}`} className="digit">
            {match.home_score}
          </span>
          <span aria-hidden="true">:</span>
          <span className="unseen"> to </span>
          <span key={`away ${match.away_score}`} className="digit">
            {match.away_score}
          </span>
        </p>
      ) : (
        <p className="board-middle kick-off numbers">
          <strong>{timeOfDay(match.start_time)}</strong>
          {soon && <span>{soon}</span>}
        </p>
      )}
      <p className="board-team">
        <Crest team={match.away_team} size={72} />
        <span>{match.away_team.name}</span>
      </p>
      <span className="board-end" />
    </section>
  );
}
