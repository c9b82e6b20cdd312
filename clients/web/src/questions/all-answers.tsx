import { useState } from "react";
import { UserCell } from "../people/user-link.tsx";
import { Points } from "../predict/all-predictions.tsx";
import { matchday } from "../session/session.ts";
import { useCursorList } from "../ui/cursor-list.ts";
import { More } from "../ui/more.tsx";
import { Loaded } from "../ui/states.tsx";
import { draftOf, type Question } from "./answer.ts";
import { AnswerText } from "./answer-text.tsx";
import type { Team } from "./tournament-matches.ts";

interface Props {
  question: Question;
  teams: Team[];
}

/** Answers of single fans to a closed question. Loaded when the fan asks for them. */
export function AllAnswers({ question, teams }: Props) {
  const [isOpen, setOpen] = useState(false);
  return (
    <div className="who-list">
      <button
        type="button"
        className="button quiet low"
        aria-expanded={isOpen}
        onClick={() => setOpen((isOpen) => !isOpen)}
      >
        {isOpen ? "Hide answers" : "Show who answered what"}
      </button>
      {isOpen && <List question={question} teams={teams} />}
    </div>
  );
}

function List({ question, teams }: Props) {
  const list = useCursorList(
    async (cursor, signal) => {
      const params = { path: { question: question.id }, query: { per_page: 20, ...(cursor !== null && { cursor }) } };
      const { data, meta } = await matchday.get("/api/auth/questions/{question}/answers", { params, signal });
      return { data, meta: { next_cursor: meta.next_cursor, total: meta.total_answers } };
    },
    ({ user }) => user.id,
    // A resolution gives points.
    [question.id, question.status],
    "fans' answers",
  );
  return (
    <Loaded resource={list.resource}>
      {({ items }) => (
        <>
          <ul className="people plain" aria-label="Answers">
            {items.map(({ user, answer, points_earned }) => (
              <li key={user.id}>
                <UserCell user={user}>
                  <span className="small soft numbers">
                    <AnswerText question={question} teams={teams} answer={draftOf(answer)} />
                  </span>
                </UserCell>
                <Points points={points_earned} />
              </li>
            ))}
          </ul>
          <More list={list} />
        </>
      )}
    </Loaded>
  );
}
