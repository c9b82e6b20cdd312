import { MatchdayError } from "@matchday/client";
import type { ReactNode } from "react";
import type { Answer } from "./answer.ts";

export function Loading({ what = "Loading" }: { what?: string }) {
  return (
    <div className="loading" role="status">
      <span aria-hidden="true" />
      <span className="unseen">{what}…</span>
    </div>
  );
}

/** What to tell people of an error. */
export function inWords(error: unknown): string {
  if (error instanceof MatchdayError) {
    const later = error.retryAfter ? ` Try again in ${inTime(error.retryAfter)}.` : "";
    const id = error.status >= 500 && error.requestId ? ` (${error.requestId})` : "";
    return error.message + later + id;
  }
  return "Something went wrong on this page.";
}

function inTime(seconds: number): string {
  const whole = Math.ceil(seconds);
  return whole < 90 ? `${whole} seconds` : `${Math.ceil(whole / 60)} minutes`;
}

export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  return (
    <div className="problem" role="alert">
      <p>{inWords(error)}</p>
      {retry && (
        <button type="button" className="button quiet" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Shows an answer once it is here, and until then what becomes of it. */
export function Shown<T>({ answer, children }: { answer: Answer<T>; children: (data: T) => ReactNode }) {
  if (answer.data !== undefined) return children(answer.data);
  if (answer.error !== undefined) return <Problem error={answer.error} retry={answer.reload} />;
  return <Loading />;
}
