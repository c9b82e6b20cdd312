import { type FormEvent, useEffect, useRef, useState } from "react";
import { flushSync } from "react-dom";
import { deleteAccount, matchday, useMe } from "../session/session.ts";
import { inWords } from "../ui/states.tsx";

/** Taking one's data along, and deleting the account. */
export function Leaving() {
  const { me } = useMe();
  const [isBusy, setBusy] = useState(false);
  const [isLeaving, setLeaving] = useState(false);
  const [error, setError] = useState<unknown>();
  const opener = useRef<HTMLButtonElement>(null);
  function stay() {
    // The button is there again, and whoever uses the keyboard goes on from it.
    flushSync(() => setLeaving(false));
    opener.current?.focus();
  }
  async function download() {
    setBusy(true);
    setError(undefined);
    try {
      const everything = await matchday.get("/api/auth/me/export");
      save(`matchday-${me.username}.json`, JSON.stringify(everything, null, 2));
    } catch (error) {
      setError(error);
    }
    setBusy(false);
  }
  return (
    <section className="card" aria-labelledby="leaving">
      <header>
        <h2 id="leaving">Your data</h2>
      </header>
      {error !== undefined && (
        <p className="notice" role="alert">
          {inWords(error)}
        </p>
      )}
      {isLeaving ? (
        <Delete stay={stay} />
      ) : (
        <div className="leaving">
          <button type="button" className="button quiet low" onClick={download} disabled={isBusy}>
            {isBusy ? "Fetching it…" : "Download my data"}
          </button>
          <button ref={opener} type="button" className="button quiet low" onClick={() => setLeaving(true)}>
            Delete my account
          </button>
        </div>
      )}
    </section>
  );
}

/** Says what becomes of everything, has a code sent, and deletes with it. */
function Delete({ stay }: { stay: () => void }) {
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
        Your phone number, your name and what you said in chat are deleted. Your predictions and coins stay, as those of
        nobody. There is no way back.
      </p>
      {isSent && (
        <div className="field">
          <label htmlFor="deletion-code">The code that was sent to your phone</label>
          <input
            ref={field}
            id="deletion-code"
            className="numbers"
            inputMode="numeric"
            autoComplete="one-time-code"
            maxLength={6}
            value={code}
            onChange={(event) => setCode(event.target.value.replace(/\D/g, ""))}
          />
        </div>
      )}
      {error !== undefined && (
        <p className="notice" role="alert">
          {inWords(error)}
        </p>
      )}
      <div className="leaving">
        <button type="submit" className="button" disabled={isBusy || (isSent && code.length < 6)}>
          {isSent ? "Delete it for good" : "Send me a code for it"}
        </button>
        <button type="button" className="button quiet" onClick={stay}>
          Keep it
        </button>
      </div>
    </form>
  );
}

function save(name: string, text: string): void {
  const link = document.createElement("a");
  link.download = name;
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.click();
  URL.revokeObjectURL(link.href);
}
