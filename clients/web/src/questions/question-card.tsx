import type { Schemas } from "@matchday/client";
import { Link } from "wouter";
import { signed } from "../matches/labels.ts";
import "../predict/predict.css";
import { Name } from "../ui/name.tsx";
import { Loaded } from "../ui/states.tsx";
import { pointsText, type Question } from "./answer.ts";
import { AnswerForm } from "./answer-form.tsx";
import { useDraft } from "./drafts.ts";
import { lockText, useNow } from "./lock.ts";
import { Outcome } from "./outcome.tsx";
import "./questions.css";
import { type Match, teamsOf, useTournamentMatches } from "./tournament-matches.ts";

interface Props {
  question: Question;
  /** The match whose page shows the question. */
  match?: Match;
  /** Name of the tournament, shown outside of a match. */
  tournament?: string | undefined;
  saved: (own: Schemas["OwnAnswer"]) => void;
  closed: () => void;
}

/** A bonus question, with a form while it is open, and with its outcome afterwards. */
export function QuestionCard({ question, match, tournament, saved, closed }: Props) {
  const { id, kind, event_id, tournament_id, status } = question;
  const needsMatches = match === undefined && (kind === "team" || event_id !== null);
  const resource = useTournamentMatches(needsMatches ? tournament_id : undefined);
  const headingId = `question-${id}`;
  const all = match ? [match] : (resource.data ?? []);
  const about = event_id === null ? undefined : all.find(({ id }) => id === event_id);
  const ofMatch = about ? [about.home_team, about.away_team] : [];
  const teams = event_id === null ? teamsOf(all) : ofMatch;
  const heading = (
    <header className="bonus-top">
      {match === undefined && <Place question={question} tournament={tournament} match={about} />}
      <div className="bonus-title">
        <h3 id={headingId} tabIndex={-1}>
          <Name>{question.text}</Name>
        </h3>
        {status === "open" && <State question={question} />}
      </div>
      <Facts question={question} />
    </header>
  );
  if (kind === "team" && teams.length === 0) {
    return (
      <section className="card bonus" aria-labelledby={headingId}>
        {heading}
        <Loaded resource={resource}>
          {() => <p className="soft">The teams of this question aren't known yet.</p>}
        </Loaded>
      </section>
    );
  }
  if (status === "open") {
    return (
      <AnswerForm
        question={question}
        teams={teams}
        headingId={headingId}
        heading={heading}
        saved={saved}
        closed={closed}
      />
    );
  }
  return (
    <section className={`card bonus closed ${status}`} aria-labelledby={headingId}>
      {heading}
      <Outcome question={question} teams={teams} isOpened={match !== undefined} />
    </section>
  );
}

/** Tournament and round, or the match with a link to its page. */
function Place(props: { question: Question; tournament: string | undefined; match: Match | undefined }) {
  const { question, tournament, match } = props;
  return (
    <p className="bonus-place small soft">
      {tournament && <Name>{tournament}</Name>}
      {question.round !== null && `${tournament ? " · " : ""}Round ${question.round}`}
      {match && (
        <>
          {" · "}
          <Link href={`/match/${match.id}`}>
            <Name>{match.home_team.name}</Name> – <Name>{match.away_team.name}</Name>
          </Link>
        </>
      )}
    </p>
  );
}

/** Whether the answer to an open question is saved. */
function State({ question }: { question: Question }) {
  const { isChanged } = useDraft(question);
  if (isChanged) return <span className="tag unsaved">Not saved</span>;
  return question.my_answer && <span className="tag good">Saved</span>;
}

/** Points at stake and the lock, or the points of a closed question. */
function Facts({ question }: { question: Question }) {
  const { status, my_answer: own, locks_at } = question;
  const now = useNow();
  const points = own?.points_earned;
  if (status === "open") {
    return (
      <p className="bonus-facts">
        <span className="tag factor numbers">{pointsText(question)}</span>
        <time className="small soft numbers" dateTime={locks_at}>
          {lockText(locks_at, now)}
        </time>
      </p>
    );
  }
  return (
    <p className="bonus-facts">
      {status === "resolved" && points != null ? (
        <span className={`tag numbers bonus-points ${points > 0 ? "good" : ""}`}>
          {signed(points)} {points === 1 ? "point" : "points"}
        </span>
      ) : (
        <span className={`tag numbers${status === "resolved" ? " bonus-points" : ""}`}>{names[status]}</span>
      )}
      {status === "locked" && <span className="small soft numbers">{pointsText(question)} at stake</span>}
      {status === "resolved" && !points && <span className="small soft numbers">of {pointsText(question)}</span>}
    </p>
  );
}

const names = { locked: "Locked", resolved: "0 points", void: "Void" };
