import { type FormEvent, useEffect, useRef, useState } from "react";
import { flushSync } from "react-dom";
import { codeIn } from "../session/code.ts";
import { deleteAccount, matchday, useMe } from "../session/session.ts";
import { saveFile } from "../ui/save-file.ts";
import { errorMessage } from "../ui/states.tsx";

/** Data export and account deletion. */
export function AccountData() {
  const { me } = useMe();
  const [isBusy, setBusy] = useState(false);
  const [isDeleting, setDeleting] = useState(false);
  const [error, setError] = useState<unknown>();
  const opener = useRef<HTMLButtonElement>(null);
  function cancel() {
    // Keyboard users continue from the button, which is visible again.
    flushSync(() => setDeleting(false));
    opener.current?.focus();
  }
  async function download() {
    setBusy(true);
    setError(undefined);
    try {
      const everything = await matchday.get("/api/auth/me/export");
      saveFile(`matchday-${me.username}.json`, JSON.stringify(everything, null, 2));
    } catch (error) {
      setError(error);
    }
    setBusy(false);
  }
  return (
    <section className="card" aria-labelledby="account-data">
      <header>
        <h2 id="account-data">Your data</h2>
      </header>
      {error !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
      {isDeleting ? (
        <DeleteAccount cancel={cancel} />
      ) : (
        <div className="account-data">
          <button type="button" className="button quiet low" onClick={download} disabled={isBusy}>
            {isBusy ? "Preparing…" : "Download my data"}
          </button>
          <button ref={opener} type="button" className="button quiet low" onClick={() => setDeleting(true)}>
            Delete my account
          </button>
        </div>
      )}
    </section>
  );
}

/** Explains the deletion, requests a code and deletes the account with it. */
function DeleteAccount({ cancel }: { cancel: () => void }) {
  const [isSent, setSent] = useState(false);
  const [code, setCode] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const top = useRef<HTMLParagraphElement>(null);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => (isSent ? field.current : top.current)?.focus(), [isSent]);

  async function submit(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      if (isSent) return await deleteAccount(code);
      await matchday.post("/api/auth/me/deletion");
      setSent(true);
    } catch (error) {
      setError(error);
      field.current?.focus();
    }
    setBusy(false);
  }
  return (
    <form className="stack" onSubmit={submit} noValidate>
      <p ref={top} tabIndex={-1}>
        Your phone number, name and chat messages will be deleted. Your predictions and coins are kept anonymously. This
        can't be undone.
      </p>
      {isSent && (
        <div className="field">
          <label htmlFor="deletion-code">Code sent to your phone</label>
          <input
            ref={field}
            id="deletion-code"
            className="numbers"
            inputMode="numeric"
            autoComplete="one-time-code"
            value={code}
            onChange={(event) => setCode(codeIn(event.target.value))}
          />
        </div>
      )}
      {error !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
      <div className="account-data">
        <button type="submit" className="button" disabled={isBusy || (isSent && code.length < 6)}>
          {isSent ? "Delete permanently" : "Send code"}
        </button>
        <button type="button" className="button quiet" onClick={cancel}>
          Keep my account
        </button>
      </div>
    </form>
  );
}
