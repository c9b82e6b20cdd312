import { useCallback, useEffect, useState } from "react";
import { Link, useLocation } from "wouter";
import { Page } from "../ui/page.tsx";
import { Loading } from "../ui/states.tsx";
import { codeIn, formatCode } from "./invite-code.ts";
import { isRefused, joinLeague, joinMessage } from "./join.ts";
import { JoinForm } from "./join-form.tsx";
import "./leagues.css";
import { welcome } from "./welcome.tsx";

/** Joins the league of an invite link and opens it, or explains why that is not possible. */
export function JoinPage({ code: text }: { code: string }) {
  const code = codeIn(text);
  const [error, setError] = useState<unknown>();
  const [, navigate] = useLocation();
  const join = useCallback(() => {
    let isCurrent = true;
    setError(undefined);
    joinLeague({ code }).then(
      (joined) => {
        if (!isCurrent) return;
        welcome(joined);
        // Replaces the invitation in the history: going back must not join again.
        navigate(`/leagues/${joined.league.id}`, { replace: true });
      },
      (error) => isCurrent && setError(error),
    );
    return () => {
      isCurrent = false;
    };
  }, [code, navigate]);
  useEffect(join, [join]);
  if (error === undefined) {
    return (
      <Page title="Joining a league">
        <Loading what="Joining the league" />
      </Page>
    );
  }
  return (
    <Page title="Your invitation" className="join-page">
      <div className="card stack">
        <p className="soft">
          Code <strong className="invite-code">{formatCode(code)}</strong>
        </p>
        <p className="notice" role="alert">
          {joinMessage(error)}
        </p>
        {!isRefused(error) && (
          <button type="button" className="button" onClick={join}>
            Try again
          </button>
        )}
        <JoinForm label="Another code or link" />
        <Link href="/leagues" className="button quiet">
          Go to your leagues
        </Link>
      </div>
    </Page>
  );
}
