import type { Schemas } from "@matchday/client";
import { Link } from "wouter";
import { Crest } from "../ui/crest.tsx";
import { Name } from "../ui/name.tsx";
import { until } from "../ui/time.ts";
import { isOpen, signed, stageLabel, stateLabel } from "./labels.ts";
import { Multiplier } from "./multiplier.tsx";
import { PickExtras, PickText } from "./pick.tsx";

interface Props {
  match: Schemas["Event"];
  own: Schemas["OwnPrediction"] | undefined;
  /** Whether the predictions are loaded. Until then, the row does not say whether there is one. */
  isOwnKnown: boolean;
}

/** A match in a list. The whole row is a link. */
export function MatchRow(props: Props) {
  const { match } = props;
  const hasScore = match.home_score != null && match.away_score != null;
  return (
    <li className="row">
      <Link href={`/match/${match.id}`} className="row-link">
        <Side team={match.home_team} score={match.home_score} hasAdvanced={match.advanced === "home"} />
        <Side team={match.away_team} score={match.away_score} hasAdvanced={match.advanced === "away"} />
        <span className="row-state numbers">
          <strong className={match.status === "live" ? "tag live" : undefined}>{stateLabel(match)}</strong>
          {!hasScore && <span className="small soft">{until(match.start_time) ?? <Name>{match.venue}</Name>}</span>}
        </span>
        <span className="row-own">
          <OwnPick {...props} />
        </span>
      </Link>
    </li>
  );
}

function Side(props: { team: Schemas["EventTeam"]; score: number | null; hasAdvanced: boolean }) {
  const { team, score, hasAdvanced } = props;
  return (
    <span className="side">
      <Crest team={team} size={24} />
      <span className="side-name">
        <Name>{team.name}</Name>
        {hasAdvanced && <Advanced />}
      </span>
      {score != null && <strong className="numbers">{score}</strong>}
    </span>
  );
}

function OwnPick({ match, own, isOwnKnown }: Props) {
  if (!own) return isOwnKnown && isOpen(match) ? <span className="tag call">Predict</span> : null;
  const points = own.points_earned;
  return (
    <>
      <span className="small soft">
        You: <PickText prediction={own} match={match} />
        <PickExtras prediction={own} match={match} />
      </span>
      {points != null && (
        <span className={`tag numbers ${points > 0 ? "good" : points < 0 ? "bad" : ""}`}>{signed(points)}</span>
      )}
    </>
  );
}

/** Large card of a live match. */
export function LiveMatch({ match, own, isOwnKnown }: Props) {
  return (
    <Link href={`/match/${match.id}`} className="board on-pitch">
      <span className="board-top">
        <span className="tag live">{stateLabel(match)}</span>
        <Place match={match} />
      </span>
      <span className="board-team">
        <Crest team={match.home_team} size={64} />
        <Name>{match.home_team.name}</Name>
      </span>
      <Score className="board-middle" home={match.home_score ?? 0} away={match.away_score ?? 0} />
      <span className="board-team">
        <Crest team={match.away_team} size={64} />
        <Name>{match.away_team.name}</Name>
      </span>
      <span className="board-foot">
        <span>
          {own ? (
            <>
              You: <PickText prediction={own} match={match} />
              <PickExtras prediction={own} match={match} />
            </>
          ) : (
            isOwnKnown && "No prediction"
          )}
        </span>
        <span className="numbers">
          {match.predictions_count.toLocaleString("en")} {match.predictions_count === 1 ? "prediction" : "predictions"}
        </span>
      </span>
    </Link>
  );
}

/** Tournament, stage and venue of a match, with its multiplier. */
export function Place({ match }: { match: Schemas["Event"] }) {
  const stage = stageLabel(match);
  return (
    <span className="board-place">
      <Name>{match.tournament.name}</Name>
      {stage && ` · ${stage}`} <Multiplier multiplier={match.multiplier} /> · <Name>{match.venue}</Name>
    </span>
  );
}

/** Mark of the team that advanced in a knockout match. */
function Advanced() {
  return (
    <span className="side-advanced">
      <span aria-hidden="true">✓</span>
      <span className="unseen"> advanced</span>
    </span>
  );
}

/** Large score. Long scores, as in basketball, use a smaller font. */
export function Score({ home, away, className = "" }: { home: number; away: number; className?: string }) {
  const digits = `${home}${away}`.length;
  const size = digits > 4 ? " very-long" : digits > 2 ? " long" : "";
  return (
    <span className={`${className} board-score numbers${size}`}>
      <span key={`home ${home}`} className="digit">
        {home}
      </span>
      <span aria-hidden="true">–</span>
      <span className="unseen"> to </span>
      <span key={`away ${away}`} className="digit">
        {away}
      </span>
    </span>
  );
}
