import { MatchdayError } from "@matchday/client";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { formatCode, invitedCode } from "../leagues/invite-code.ts";
import { Mark } from "../ui/mark.tsx";
import { errorMessage } from "../ui/states.tsx";
import "./login.css";
import { codeIn } from "./code.ts";
import { logIn, matchday } from "./session.ts";
import { UsernameField } from "./username.tsx";

/** Login by phone number and code. The first login creates the account. */
export function Login() {
  const [phone, setPhone] = useState("");
  const [validUntil, setValidUntil] = useState<number>();
  const [isLimited, setLimited] = useState(false);
  // The address keeps the code, so the league is joined after the login.
  const invitation = invitedCode();
  function sent(until: number, limited: boolean) {
    setValidUntil(until);
    setLimited(limited);
  }
  useEffect(() => {
    document.title = "Log in · Matchday";
  }, []);
  return (
    <main className="login on-pitch" id="main">
      <header>
        <Mark />
        {invitation ? (
          <>
            <h1>You're invited.</h1>
            <p>
              Log in to join the league with the code <strong>{formatCode(invitation)}</strong>. New here? The first
              login creates your account.
            </p>
          </>
        ) : (
          <>
            <h1>
              Call it.
              <br />
              Then watch it.
            </h1>
            <p>Predict matches, show how sure you are and chat with other fans.</p>
          </>
        )}
      </header>
      <div className="card">
        {validUntil === undefined ? (
          <PhoneForm phone={phone} setPhone={setPhone} sent={sent} />
        ) : (
          <CodeForm
            phone={phone}
            validUntil={validUntil}
            isLimited={isLimited}
            sent={sent}
            back={() => setValidUntil(undefined)}
          />
        )}
      </div>
    </main>
  );
}

/** Called after a code request, with its expiry and whether codes go only to numbers that were used before. */
type Sent = (until: number, limited: boolean) => void;

function PhoneForm(props: { phone: string; setPhone: (phone: string) => void; sent: Sent }) {
  const { phone, setPhone, sent } = props;
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const fault = error instanceof MatchdayError ? error.errors.phone?.[0] : undefined;

  async function submit(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    try {
      const { expires_in, notice } = await matchday.requestCode(phone);
      sent(Date.now() + expires_in * 1000, notice === "codes_limited");
    } catch (error) {
      setError(error);
      setBusy(false);
      field.current?.focus();
    }
  }
  return (
    <form className="stack" onSubmit={submit} noValidate>
      <h2>Log in</h2>
      <div className="field">
        <label htmlFor="phone">Phone number</label>
        <input
          ref={field}
          id="phone"
          type="tel"
          autoComplete="tel"
          required
          placeholder="+1 555 010 0100"
          value={phone}
          onChange={(event) => setPhone(event.target.value)}
          aria-invalid={fault !== undefined}
          aria-describedby="phone-help"
        />
        <p id="phone-help" className={fault ? "fault" : "small soft"} role={fault ? "alert" : undefined}>
          {fault ?? "Include the country code. We'll text you a six-digit code."}
        </p>
      </div>
      {error !== undefined && !fault && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
      <button type="submit" className="button wide" disabled={isBusy}>
        {isBusy ? "Sending…" : "Send code"}
      </button>
    </form>
  );
}

function CodeForm(props: { phone: string; validUntil: number; isLimited: boolean; sent: Sent; back: () => void }) {
  const { phone, validUntil, isLimited, sent, back } = props;
  const [code, setCode] = useState("");
  const [username, setUsername] = useState("");
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const [notice, setNotice] = useState("");
  const field = useRef<HTMLInputElement>(null);
  const left = useSecondsUntil(validUntil);
  const usernameFault = error instanceof MatchdayError ? error.errors.username?.[0] : undefined;

  useEffect(() => field.current?.focus(), []);

  async function submit(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await logIn(phone, code.trim(), username.trim() || undefined);
    } catch (error) {
      setError(error);
      setBusy(false);
      field.current?.focus();
    }
  }
  async function resend() {
    setError(undefined);
    try {
      const { data } = await matchday.post("/api/auth/resend-code", { body: { phone } });
      sent(Date.now() + data.expires_in * 1000, data.notice === "codes_limited");
      setCode("");
      setNotice("We sent a new code. The previous one no longer works.");
    } catch (error) {
      setError(error);
    }
  }
  return (
    <form className="stack" onSubmit={submit} noValidate>
      <h2>Enter your code</h2>
      {isLimited && (
        <p className="notice" role="status">
          We can send only a few codes right now. If you have used this number here before, your code is on its way.
          Otherwise, try again later.
        </p>
      )}
      <div className="field">
        <label htmlFor="code">Code sent to {phone}</label>
        <input
          ref={field}
          id="code"
          className="code numbers"
          inputMode="numeric"
          autoComplete="one-time-code"
          required
          value={code}
          onChange={(event) => setCode(codeIn(event.target.value))}
          aria-describedby="code-help"
        />
        <p id="code-help" className="small soft numbers">
          {left > 0
            ? `Expires in ${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`
            : "This code has expired. Request a new one."}
        </p>
      </div>
      <details>
        <summary>New here? Choose a username</summary>
        <UsernameField value={username} setValue={setUsername} fault={usernameFault} />
      </details>
      {error !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
      <p role="status" className={notice ? "small soft" : "unseen"}>
        {notice}
      </p>
      <button type="submit" className="button wide" disabled={isBusy || code.length < 6}>
        {isBusy ? "Logging in…" : "Log in"}
      </button>
      <div className="login-more">
        <button type="button" className="button quiet low" onClick={resend}>
          Resend code
        </button>
        <button type="button" className="button quiet low" onClick={back}>
          Change number
        </button>
      </div>
    </form>
  );
}

function useSecondsUntil(moment: number): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return Math.max(0, Math.ceil((moment - now) / 1000));
}
