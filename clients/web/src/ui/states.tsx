import { MatchdayError } from "@matchday/client";
import type { ReactNode } from "react";
import type { Resource } from "./resource.ts";

export function Loading({ what = "Loading" }: { what?: string }) {
  return (
    <div className="loading" role="status">
      <span aria-hidden="true" />
      <span className="unseen">{what}…</span>
    </div>
  );
}

/** Replacements for messages of the service where the app knows the context better. */
const messages: Record<string, string> = {
  invalid_code: "Wrong or expired code.",
  no_joker_left:
    "You have no joker left in this tournament. Switch it off to save, or first take one back from another match.",
  not_found: "This doesn't exist or is no longer available.",
};

/** Message for the fan. `own` has messages for errors that mean something else in its place, by their code. */
export function errorMessage(error: unknown, own: Record<string, string> = {}): string {
  if (!(error instanceof MatchdayError)) return "Something went wrong. Reload the page and try again.";
  if (error.code === "no_response") {
    return navigator.onLine
      ? "We can't reach the server. Check your connection and try again."
      : "You're offline. Check your connection and try again.";
  }
  const message = own[error.code] ?? messages[error.code] ?? error.message;
  const reference = error.status >= 500 && error.requestId ? ` (Reference: ${error.requestId})` : "";
  if (!error.retryAfter) return message + reference;
  // Replaces a "Try again" sentence of the service, which does not contain the time.
  const rest = message.replace(/\s*(please )?try again[^.]*\./gi, "");
  return `${rest} Try again in ${duration(error.retryAfter)}.${reference}`;
}

function duration(seconds: number): string {
  const whole = Math.ceil(seconds);
  if (whole === 1) return "1 second";
  return whole < 90 ? `${whole} seconds` : `${Math.ceil(whole / 60)} minutes`;
}

/** An error, with a button that tries again unless the subject does not exist. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const isGone = error instanceof MatchdayError && error.status === 404;
  return (
    <div className="problem" role="alert">
      <p>{errorMessage(error)}</p>
      {retry && !isGone && (
        <button type="button" className="button quiet" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Renders the data of a resource, or its loading state or error. */
export function Loaded<T>({ resource, children }: { resource: Resource<T>; children: (data: T) => ReactNode }) {
  if (resource.data !== undefined) return children(resource.data);
  if (resource.error !== undefined) return <Problem error={resource.error} retry={resource.reload} />;
  return <Loading />;
}
