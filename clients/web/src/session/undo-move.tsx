import { type FormEvent, useEffect, useState } from "react";
import { Mark } from "../ui/mark.tsx";
import { errorMessage } from "../ui/states.tsx";
import { matchday } from "./session.ts";
import "./login.css";

/** Whether the page was opened from the text message that a phone gets after a phone move: `/?undo#CODE`. */
export function isUndoLink(): boolean {
  return new URLSearchParams(window.location.search).has("undo");
}

/** Undoes a phone move: returns the account to its old phone. Needs no session. */
export function UndoMove() {
  const [code, setCode] = useState(() => decodeURIComponent(window.location.hash.slice(1)));
  const [error, setError] = useState<unknown>();
  const [phone, setPhone] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Undo phone number change · Matchday";
  }, []);
  async function submit(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      const { data } = await matchday.post("/api/phone/undo-move", { body: { code } });
      setPhone(data.phone);
    } catch (error) {
      setError(error);
    }
    setBusy(false);
  }
  return (
    <main className="login ended on-pitch" id="main">
      <div className="card stack">
        <Mark />
        {phone === undefined ? (
          <form className="stack" onSubmit={submit} noValidate>
            <h1>Undo the phone number change</h1>
            <p>Your account was moved to another phone number. If this wasn't you, undo the change here.</p>
            <div className="field">
              <label htmlFor="undo-code">Code from the text message</label>
              <input
                id="undo-code"
                autoComplete="off"
                autoCapitalize="characters"
                spellCheck={false}
                required
                value={code}
                onChange={(event) => setCode(event.target.value)}
              />
            </div>
            {error !== undefined && (
              <p className="notice" role="alert">
                {errorMessage(error)}
              </p>
            )}
            <button type="submit" className="button wide" disabled={isBusy || code.trim() === ""}>
              {isBusy ? "Undoing…" : "Undo the change"}
            </button>
          </form>
        ) : (
          <>
            <h1>Your account is restored</h1>
            <p role="status">
              Your account uses {phone} again, and all devices were logged out. Log in with this number.
            </p>
            <a className="button wide" href="./">
              Log in
            </a>
          </>
        )}
      </div>
    </main>
  );
}
