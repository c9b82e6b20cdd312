import type { Schemas } from "@matchday/client";
import { isFinal, stateLabel } from "../matches/labels.ts";
import { Place, Score } from "../matches/match-row.tsx";
import { Crest } from "../ui/crest.tsx";
import { Name } from "../ui/name.tsx";
import { nameOfDay, timeOfDay, until } from "../ui/time.ts";

/** The teams with the score, or with the kick-off time. */
export function Scoreboard({ match }: { match: Schemas["Event"] }) {
  const { home_score: home, away_score: away } = match;
  const soon = until(match.start_time);
  return (
    <section className="board scoreboard on-pitch" aria-label="Score">
      <p className="board-top">
        <span className={match.status === "live" ? "tag live" : undefined}>
          {match.status_detail === "scheduled" ? nameOfDay(match.start_time) : stateLabel(match)}
        </span>
        <Place match={match} />
      </p>
      <p className="board-team">
        <Crest team={match.home_team} size={72} />
        <Name>{match.home_team.name}</Name>
        {match.advanced === "home" && <Advanced isFinal={isFinal(match)} />}
      </p>
      {home != null && away != null ? (
        <p className="board-middle">
          <Score home={home} away={away} />
        </p>
      ) : (
        <p className="board-middle kick-off numbers">
          <strong>{timeOfDay(match.start_time)}</strong>
          {soon && <span>{soon}</span>}
        </p>
      )}
      <p className="board-team">
        <Crest team={match.away_team} size={72} />
        <Name>{match.away_team.name}</Name>
        {match.advanced === "away" && <Advanced isFinal={isFinal(match)} />}
      </p>
      <span className="board-end" />
    </section>
  );
}

function Advanced({ isFinal }: { isFinal: boolean }) {
  return <span className="tag advanced">{isFinal ? "Won the final" : "Advanced"}</span>;
}
