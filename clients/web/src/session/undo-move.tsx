import { type FormEvent, useEffect, useState } from "react";
import { Mark } from "../ui/mark.tsx";
import { inWords } from "../ui/states.tsx";
import { matchday } from "./session.ts";
import "./login.css";

/** Whether the page was opened from the text message to a phone that an account has left: `/?undo#CODE`. */
export function isUndoLink(): boolean {
  return new URLSearchParams(window.location.search).has("undo");
}

/** Gives an account back to the phone that it left. No session is needed. */
export function UndoMove() {
  const [code, setCode] = useState(() => decodeURIComponent(window.location.hash.slice(1)));
  const [error, setError] = useState<unknown>();
  const [phone, setPhone] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Undo the change · Matchday";
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
            <p>Your account was moved to another phone number. If that wasn't you, take it back here.</p>
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
                {inWords(error)}
              </p>
            )}
            <button type="submit" className="button wide" disabled={isBusy || code.trim() === ""}>
              {isBusy ? "Undoing…" : "Take my account back"}
            </button>
          </form>
        ) : (
          <>
            <h1>Your account is back</h1>
            <p role="status">It belongs to {phone} again, and every device was logged out. Log in with that number.</p>
            <a className="button wide" href="./">
              Log in
            </a>
          </>
        )}
      </div>
    </main>
  );
}
