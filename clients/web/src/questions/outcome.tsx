import { useState } from "react";
import { counted } from "../matches/labels.ts";
import { matchday } from "../session/session.ts";
import { Name } from "../ui/name.tsx";
import { useResource } from "../ui/resource.ts";
import { Loaded } from "../ui/states.tsx";
import { AllAnswers } from "./all-answers.tsx";
import { draftOf, isRight, type Question, rightOf } from "./answer.ts";
import { AnswerText, labelOf } from "./answer-text.tsx";
import { barsOf } from "./distribution.ts";
import { isLost, useDraft, useDrafts } from "./drafts.ts";
import type { Team } from "./tournament-matches.ts";

interface Props {
  question: Question;
  teams: Team[];
}

/** A closed question: the fan's answer, the right answer and all answers. */
export function Outcome({ question, teams, isOpened }: Props & { isOpened: boolean }) {
  const { status, my_answer: own } = question;
  const right = rightOf(question);
  const answer = draftOf(own?.answer);
  return (
    <>
      <Lost question={question} teams={teams} />
      {status === "void" && <p className="soft">This question doesn't count. No points are awarded.</p>}
      <dl className="bonus-outcome">
        <div>
          <dt>Your answer</dt>
          <dd>
            {!own ? (
              <span className="soft">You didn't answer</span>
            ) : status === "resolved" ? (
              <ul className="bonus-picks">
                {answer.map((key) => (
                  <li key={key} className={`tag numbers ${isRight(question, key) ? "good" : "bad"}`}>
                    <span aria-hidden="true">{isRight(question, key) ? "✓" : "✗"}</span>
                    <Name>{labelOf(question, teams, key)}</Name>
                    <span className="unseen">{isRight(question, key) ? " (right)" : " (wrong)"}</span>
                  </li>
                ))}
              </ul>
            ) : (
              <strong className="numbers">
                <AnswerText question={question} teams={teams} answer={answer} />
              </strong>
            )}
          </dd>
        </div>
        {status === "resolved" && (
          <div>
            <dt>{right.length > 1 ? "Right answers" : "Right answer"}</dt>
            <dd>
              <strong className="numbers">
                <AnswerText question={question} teams={teams} answer={right} />
              </strong>
            </dd>
          </div>
        )}
        {status === "locked" && (
          <div>
            <dt>Right answer</dt>
            <dd className="soft">Not known yet</dd>
          </div>
        )}
      </dl>
      <Everyone question={question} teams={teams} isOpened={isOpened} />
    </>
  );
}

/** Message that the question closed before a change was saved. */
function Lost({ question, teams }: Props) {
  const drafts = useDrafts();
  const { discard } = useDraft(question);
  if (!isLost(question, drafts)) return null;
  return (
    <div className="notice with-action" role="alert">
      <p>
        This question is closed. Your answer{" "}
        <strong>
          <AnswerText question={question} teams={teams} answer={drafts.get(question.id) ?? []} />
        </strong>{" "}
        wasn't saved{question.my_answer ? ", so your earlier answer counts" : ""}.
      </p>
      <button type="button" className="button quiet low" onClick={discard}>
        OK
      </button>
    </div>
  );
}

function Everyone({ question, teams, isOpened }: Props & { isOpened: boolean }) {
  const [isOpen, setOpen] = useState(isOpened);
  if (question.answers_count === 0) return <p className="small soft">No fan answered this question.</p>;
  return (
    <details className="bonus-everyone" open={isOpen} onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>
        <span>How fans answered</span>
        <span className="small soft numbers">{counted(question.answers_count, "answer")}</span>
      </summary>
      {isOpen && (
        <div className="stack">
          <Bars question={question} teams={teams} />
          <AllAnswers question={question} teams={teams} />
        </div>
      )}
    </details>
  );
}

/** Number of bars that are shown at first. */
const mostBars = 6;

function Bars({ question, teams }: Props) {
  const { id, kind, answers_count } = question;
  const [isComplete, setComplete] = useState(false);
  const resource = useResource(
    (signal) =>
      matchday.get("/api/auth/questions/{question}/answers", {
        // The distribution of numbers is not part of the response. It is counted if one page has all answers.
        params: { path: { question: id }, query: { per_page: kind === "number" ? 100 : 1 } },
        signal,
      }),
    [id, kind, answers_count],
    "answers",
  );
  return (
    <Loaded resource={resource}>
      {(answers) => {
        const bars = barsOf(question, teams, answers);
        if (!bars) return <p className="small soft">There are too many different answers to show.</p>;
        const isShown = (index: number) => isComplete || bars.length <= mostBars + 1 || index < mostBars;
        const shown = bars.filter(({ isOwn, isRight }, index) => isShown(index) || isOwn || isRight);
        return (
          <>
            <ul className="bonus-bars numbers">
              {shown.map(({ key, label, count, share, isOwn, isRight }) => (
                <li key={key} className={isRight ? "right" : isOwn ? "own" : undefined}>
                  <span className="bonus-bar-label">
                    <Name>{label}</Name>
                    {isRight && <span className="tag good">Right</span>}
                    {isOwn && <span className="tag">You</span>}
                  </span>
                  <strong>
                    {share}%<span className="unseen">, {counted(count, "answer")}</span>
                  </strong>
                  <span className="bonus-bar" aria-hidden="true">
                    <span style={{ width: `${share}%` }} />
                  </span>
                </li>
              ))}
            </ul>
            {shown.length < bars.length && (
              <button type="button" className="button quiet low" onClick={() => setComplete(true)}>
                Show all {bars.length}
              </button>
            )}
          </>
        );
      }}
    </Loaded>
  );
}
