import { useState } from "react";
import { counted } from "../matches/labels.ts";
import { useTournaments } from "../matches/tournaments.ts";
import { Back } from "../ui/back.tsx";
import { Page } from "../ui/page.tsx";
import { useSessionState } from "../ui/session-state.ts";
import { Loaded } from "../ui/states.tsx";
import { pointsWon, type Question, unanswered } from "./answer.ts";
import { isLost, useDrafts } from "./drafts.ts";
import { QuestionCard } from "./question-card.tsx";
import "./questions.css";
import { type Questions, useQuestions, withAnswer } from "./questions.ts";

/** All bonus questions: open ones first, then the closed ones with the fan's points. */
export function QuestionsPage() {
  const tournaments = useTournaments();
  const [tournament, setTournament] = useSessionState<number | null>("questions.tournament", null);
  const [pages, setPages] = useState(1);
  const resource = useQuestions(tournament === null ? {} : { tournament_id: tournament }, pages);
  // The list stays visible while the next page loads.
  const [shown, setShown] = useState<{ tournament: number | null; data: Questions }>();
  if (resource.data !== undefined && resource.data !== shown?.data) setShown({ tournament, data: resource.data });
  const kept = shown?.tournament === tournament && resource.error === undefined ? shown.data : undefined;
  const current = { ...resource, data: resource.data ?? kept };
  const names = new Map(tournaments.data?.map(({ id, name }) => [id, name]));
  const drafts = useDrafts();
  const card = (question: Question) => (
    <li key={question.id}>
      <QuestionCard
        question={question}
        tournament={names.get(question.tournament_id)}
        saved={(own) => resource.change((all) => withAnswer(all, own))}
        closed={resource.reload}
      />
    </li>
  );
  return (
    <Page title="Bonus questions" className="bonus-page" before={<Back to="/">All matches</Back>}>
      <p className="soft bonus-intro">
        Right answers win points, which count in leaderboards and leagues. You can change an answer until the question
        locks.
      </p>
      {(tournaments.data?.length ?? 0) > 1 && (
        <div className="filters">
          <label>
            <span className="unseen">Tournament</span>
            <select
              className={`select${tournament === null ? "" : " chosen"}`}
              value={tournament ?? ""}
              onChange={({ target }) => {
                setTournament(target.value ? Number(target.value) : null);
                setPages(1);
              }}
            >
              <option value="">All tournaments</option>
              {tournaments.data?.map(({ id, name }) => (
                <option key={id} value={id} dir="auto">
                  {name}
                </option>
              ))}
            </select>
          </label>
        </div>
      )}
      <Loaded resource={current}>
        {({ questions, total }) => {
          // A question that closes before the fan saves stays in its place, with a message.
          const isHere = (question: Question) => question.status === "open" || isLost(question, drafts);
          const [open, closed] = [questions.filter(isHere), questions.filter((question) => !isHere(question))];
          const waiting = unanswered(questions);
          // Not the sum of all questions while only some of them are loaded.
          const won = questions.length === total ? pointsWon(questions) : 0;
          return (
            <div className={`bonus-halves${open.length === 0 || closed.length === 0 ? " single" : ""}`}>
              <section className="stack" aria-labelledby="open-questions">
                <header className="bonus-header">
                  <h2 id="open-questions">Open</h2>
                  {open.length > 0 && (
                    <span className={`tag ${waiting > 0 ? "factor" : "good"}`}>
                      {waiting > 0 ? `${waiting} to answer` : "All answered"}
                    </span>
                  )}
                </header>
                {open.length > 0 ? (
                  <ul className="bonus-list">{open.map(card)}</ul>
                ) : (
                  <p className="card empty">No open questions. Check back before the next round.</p>
                )}
              </section>
              <section className="stack" aria-labelledby="closed-questions">
                <header className="bonus-header">
                  <h2 id="closed-questions">Closed</h2>
                  {won > 0 && <span className="tag good numbers">{counted(won, "point")} won</span>}
                </header>
                {closed.length > 0 ? (
                  <ul className="bonus-list">{closed.map(card)}</ul>
                ) : (
                  <p className="card empty">No closed questions yet.</p>
                )}
                {questions.length < total && (
                  <button type="button" className="button quiet" onClick={() => setPages((pages) => pages + 1)}>
                    Show more
                  </button>
                )}
              </section>
            </div>
          );
        }}
      </Loaded>
    </Page>
  );
}
