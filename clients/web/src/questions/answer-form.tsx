import { MatchdayError, type Schemas } from "@matchday/client";
import { type FormEvent, type ReactNode, useRef, useState } from "react";
import { matchday } from "../session/session.ts";
import { notifyTabs } from "../ui/refresh.ts";
import { errorMessage } from "../ui/states.tsx";
import { answerOf, draftOf, hintOf, type Question, rulesText } from "./answer.ts";
import { AnswerText } from "./answer-text.tsx";
import { useDraft } from "./drafts.ts";
import { Fields } from "./fields.tsx";
import type { Team } from "./tournament-matches.ts";

interface Props {
  question: Question;
  teams: Team[];
  /** Id of the heading. */
  headingId: string;
  heading: ReactNode;
  saved: (own: Schemas["OwnAnswer"]) => void;
  /** Called when the service reports that the question is closed. */
  closed: () => void;
}

const closedCodes = ["question_locked", "question_resolved", "question_void"];

/** Answer to an open question. It can be changed until the question locks. */
export function AnswerForm({ question, teams, headingId, heading, saved, closed }: Props) {
  const { id, my_answer: own } = question;
  const { values, isChanged, edit, discard } = useDraft(question);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const form = useRef<HTMLFormElement>(null);
  const answer = answerOf(question, values);
  const hint = hintOf(question, values);
  const hintId = `hint-${id}`;
  const isInvalid = question.kind === "number" && hint !== undefined;

  // The focused button disappears.
  const focusHeading = () => form.current?.querySelector<HTMLElement>("h3")?.focus({ preventScroll: true });

  async function submit(event: FormEvent) {
    event.preventDefault();
    if (answer === undefined || !isChanged || isBusy) return;
    setBusy(true);
    setError(undefined);
    try {
      const params = { path: { question: id } };
      const { data } = await matchday.put("/api/auth/questions/{question}/answer", { params, body: { answer } });
      saved(data);
      discard();
      focusHeading();
      notifyTabs();
    } catch (error) {
      setError(error);
      // The closed question keeps the draft and shows that it was not saved.
      if (error instanceof MatchdayError && closedCodes.includes(error.code)) closed();
    }
    setBusy(false);
  }

  const savedText = own && <AnswerText question={question} teams={teams} answer={draftOf(own.answer)} />;
  const unsavedText =
    isBusy || error !== undefined ? "" : (hint ?? (own ? <>Saved so far: {savedText}.</> : "Not saved yet."));
  const rules = rulesText(question);
  return (
    <form ref={form} className="card bonus" onSubmit={submit} aria-labelledby={headingId}>
      {heading}
      {rules && <p className="bonus-rules soft">{rules}</p>}
      <Fields
        question={question}
        teams={teams}
        values={values}
        edit={(draft) => {
          setError(undefined);
          edit(draft);
        }}
        hintId={hintId}
        isInvalid={isInvalid}
      />
      {error !== undefined && (
        <p className="notice" role="alert">
          Your answer isn't saved. {errorMessage(error, { http_503: "The server is overloaded." })}
        </p>
      )}
      <div className={`save bonus-save ${isChanged ? "changed" : own ? "" : "idle"}`}>
        <p id={hintId} role="status" className={`small${isInvalid ? " fault" : ""}`}>
          {isChanged ? unsavedText : own && <>Saved: {savedText}.</>}
        </p>
        {isChanged && (
          <div className="save-buttons">
            <button
              type="button"
              className="button quiet"
              disabled={isBusy}
              onClick={() => {
                setError(undefined);
                discard();
                focusHeading();
              }}
            >
              Undo
            </button>
            <button type="submit" className="button" disabled={answer === undefined || isBusy}>
              {isBusy ? "Saving…" : error !== undefined ? "Try again" : own ? "Save changes" : "Save answer"}
            </button>
          </div>
        )}
      </div>
    </form>
  );
}
