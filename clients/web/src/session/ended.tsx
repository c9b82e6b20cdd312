import { useEffect, useRef, useState } from "react";
import { Mark } from "../ui/mark.tsx";
import { errorMessage } from "../ui/states.tsx";
import { type Ending, hasToken, isStillSuspended, startAgain } from "./session.ts";
import "./login.css";

const texts: Record<Ending, { title: string; text: string[]; next: string }> = {
  ended: {
    title: "You've been logged out",
    text: [
      "Your session has ended. It may have expired, or you ended it on another device.",
      "Your predictions and coins are safe. Log in again to continue.",
    ],
    next: "Log in again",
  },
  suspended: {
    title: "Your account is suspended",
    text: [
      "A moderator suspended this account. Until the suspension ends, you can't make predictions or use the chat.",
      "If you think this is a mistake, contact support.",
    ],
    next: "Use another number",
  },
  deleted: {
    title: "Your account has been deleted",
    text: [
      "Your phone number, name and chat messages are deleted. Your predictions and coins are kept anonymously.",
      "You can sign up again with the same number at any time.",
    ],
    next: "Back to login",
  },
};

/** Explains why the session ended and what the fan can do next. */
export function Ended({ ending }: { ending: Ending }) {
  const { title, text, next } = texts[ending];
  const top = useRef<HTMLHeadingElement>(null);
  const [isBusy, setBusy] = useState(false);
  const [message, setMessage] = useState("");
  useEffect(() => {
    document.title = `${title} · Matchday`;
    top.current?.focus();
  }, [title]);
  async function checkAgain() {
    setBusy(true);
    setMessage("");
    try {
      if (await isStillSuspended()) setMessage("Your account is still suspended.");
    } catch (error) {
      setMessage(errorMessage(error));
    }
    setBusy(false);
  }
  return (
    <main className="login ended on-pitch" id="main">
      <div className="card stack">
        <Mark />
        <h1 ref={top} tabIndex={-1}>
          {title}
        </h1>
        {text.map((paragraph) => (
          <p key={paragraph}>{paragraph}</p>
        ))}
        {ending === "suspended" && hasToken() && (
          <button type="button" className="button wide" onClick={checkAgain} disabled={isBusy}>
            {isBusy ? "Checking…" : "Check again"}
          </button>
        )}
        <button
          type="button"
          className={`button wide${ending === "suspended" ? " quiet" : ""}`}
          onClick={() => startAgain()}
        >
          {next}
        </button>
        <p role="status" className={message ? "small soft" : "unseen"}>
          {message}
        </p>
      </div>
    </main>
  );
}
