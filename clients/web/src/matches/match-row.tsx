import type { Schemas } from "@matchday/client";
import { Link } from "wouter";
import { Crest } from "../ui/crest.tsx";
import { until } from "../ui/time.ts";
import { isOpen, said, signed, standing } from "./words.ts";

interface Props {
  match: Schemas["Event"];
  own: Schemas["OwnPrediction"] | undefined;
}

/** A match as a line of the list; all of it leads to the match. */
export function MatchRow({ match, own }: Props) {
  const hasScore = match.home_score != null && match.away_score != null;
  return (
    <li className="row">
      <Link href={`/match/${match.id}`} className="row-link">
        <Side team={match.home_team} score={match.home_score} />
        <Side team={match.away_team} score={match.away_score} />
        <span className="row-state numbers">
          <strong>{standing(match)}</strong>
          {!hasScore && <span className="small soft">{until(match.start_time) ?? match.venue}</span>}
        </span>
        <span className="row-own">
          <Own match={match} own={own} />
        </span>
      </Link>
    </li>
  );
}

function Side({ team, score }: { team: Schemas["EventTeam"]; score: number | null }) {
  return (
    <span className="side">
      <Crest team={team} size={24} />
      <span className="side-name">{team.name}</span>
      {score != null && <strong className="numbers">{score}</strong>}
    </span>
  );
}

function Own({ match, own }: Props) {
  if (!own) return isOpen(match) ? <span className="tag call">Predict</span> : null;
  const points = own.points_earned;
  return (
    <>
      <span className="small soft">You: {said(own, match.home_team.name, match.away_team.name)}</span>
      {points != null && (
        <span className={`tag numbers ${points > 0 ? "good" : points < 0 ? "bad" : ""}`}>{signed(points)}</span>
      )}
    </>
  );
}

/** A match that is being played, large. */
export function LiveMatch({ match, own }: Props) {
  return (
    <Link href={`/match/${match.id}`} className="board on-pitch">
      <span className="board-top">
        <span className="tag live">{standing(match)}</span>
        <span>
          {match.tournament.name} · {match.venue}
        </span>
      </span>
      <span className="board-team">
        <Crest team={match.home_team} size={64} />
        <span>{match.home_team.name}</span>
      </span>
      <span className="board-middle board-score numbers">
        {match.home_score ?? 0}
        <span aria-hidden="true">:</span>
        <span className="unseen"> to </span>
        {match.away_score ?? 0}
      </span>
      <span className="board-team">
        <Crest team={match.away_team} size={64} />
        <span>{match.away_team.name}</span>
      </span>
      <span className="board-foot">
        <span>
          {own ? `You: ${said(own, match.home_team.name, match.away_team.name)}` : "You have said nothing of it"}
        </span>
        <span className="numbers">{match.predictions_count} predictions</span>
      </span>
    </Link>
  );
}
