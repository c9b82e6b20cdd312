import { Link } from "wouter";
import { formatNumber } from "../matches/labels.ts";
import { matchday } from "../session/session.ts";
import { useResource } from "../ui/resource.ts";
import { lockText, useNow } from "./lock.ts";
import "./questions.css";

/** Link to the bonus questions, with the number of open ones without an answer. Hidden if there are no questions. */
export function QuestionsLink() {
  const now = useNow();
  const { data } = useResource(
    async (signal) => {
      const count = (query: { status?: "open"; answered?: boolean }) =>
        matchday.get("/api/auth/questions", { params: { query: { ...query, per_page: 1 } }, signal });
      const [all, open, waiting] = await Promise.all([
        count({}),
        count({ status: "open" }),
        count({ status: "open", answered: false }),
      ]);
      return {
        all: all.meta.total,
        open: open.meta.total,
        waiting: waiting.meta.total,
        first: waiting.data[0]?.locks_at,
      };
    },
    [],
    "questions link",
  );
  // The matches are useful without the link, so an error is not shown. The page of the questions shows it.
  if (!data || data.all === 0) return null;
  const { open, waiting, first } = data;
  return (
    <Link href="/questions" className={`card bonus-link${waiting > 0 ? " waiting" : ""}`}>
      <span className="bonus-sign" aria-hidden="true">
        ?
      </span>
      <span className="bonus-link-text">
        <strong>Bonus questions</strong>
        <span className="small soft numbers">
          {waiting > 0 && first
            ? lockText(first, now).replace(/^Locks/, waiting > 1 ? "First locks" : "Locks")
            : open > 0
              ? "All open questions answered"
              : "See answers and points"}
        </span>
      </span>
      {waiting > 0 && <span className="tag factor numbers">{formatNumber(waiting)} to answer</span>}
      <span className="chevron" aria-hidden="true">
        ›
      </span>
    </Link>
  );
}
