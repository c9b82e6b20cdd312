import { Link } from "wouter";
import { Problem } from "../ui/states.tsx";
import { QuestionCard } from "./question-card.tsx";
import { useQuestions, withAnswer } from "./questions.ts";
import type { Match } from "./tournament-matches.ts";

/** Bonus questions on a match. Most matches have none, so there is no loading state. */
export function MatchQuestions({ match }: { match: Match }) {
  const resource = useQuestions({ event_id: match.id });
  const questions = resource.data?.questions ?? [];
  if (resource.data === undefined && resource.error !== undefined) {
    return (
      <section className="card" aria-label="Bonus questions">
        <Problem error={resource.error} retry={resource.reload} />
      </section>
    );
  }
  if (questions.length === 0) return null;
  return (
    <section className="stack bonus-section" aria-labelledby="bonus">
      <header className="bonus-header">
        <h2 id="bonus">Bonus questions</h2>
        <Link href="/questions" className="small">
          All questions
        </Link>
      </header>
      <ul className="bonus-list">
        {questions.map((question) => (
          <li key={question.id}>
            <QuestionCard
              question={question}
              match={match}
              saved={(own) => resource.change((all) => withAnswer(all, own))}
              closed={resource.reload}
            />
          </li>
        ))}
      </ul>
    </section>
  );
}
