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

/** Messages of the page's own, where the context of the page allows a clearer one than the service's. */
const messages: Record<string, string> = {
  invalid_code: "Wrong or expired code.",
  not_found: "This doesn't exist, or is no longer available.",
};

/** An error in words, for the fan. */
export function inWords(error: unknown): string {
  if (!(error instanceof MatchdayError)) return "Something went wrong. Reload the page and try again.";
  if (error.code === "no_answer") {
    return navigator.onLine
      ? "We can't reach the server. Check your connection and try again."
      : "You're offline. Check your connection and try again.";
  }
  const message = messages[error.code] ?? error.message;
  const reference = error.status >= 500 && error.requestId ? ` (Reference: ${error.requestId})` : "";
  if (!error.retryAfter) return message + reference;
  // The service may say that too, but not how long it takes.
  const rest = message.replace(/\s*(please )?try again[^.]*\./i, "");
  return `${rest} Try again in ${inTime(error.retryAfter)}.${reference}`;
}

function inTime(seconds: number): string {
  const whole = Math.ceil(seconds);
  if (whole === 1) return "1 second";
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

/** Shows an answer once it is here; before that, that it is loading or why it failed. */
export function Shown<T>({ answer, children }: { answer: Answer<T>; children: (data: T) => ReactNode }) {
  if (answer.data !== undefined) return children(answer.data);
  if (answer.error !== undefined) return <Problem error={answer.error} retry={answer.reload} />;
  return <Loading />;
}
