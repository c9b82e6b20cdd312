import { type FormEvent, useState } from "react";
import { useLocation } from "wouter";
import { codeIn, isCode } from "./invite-code.ts";
import { joinLeague, joinMessage } from "./join.ts";
import { welcome } from "./welcome.tsx";

/** Joins a league by a code or link that the fan types or pastes. */
export function JoinForm({ label = "Invite code or link" }: { label?: string }) {
  const [text, setText] = useState("");
  const [fault, setFault] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [, navigate] = useLocation();
  async function submit(event: FormEvent) {
    event.preventDefault();
    const code = codeIn(text);
    if (!isCode(code)) {
      return setFault("A code has eight letters and digits, like K7MP-Q2RS.");
    }
    setBusy(true);
    setFault("");
    try {
      const joined = await joinLeague({ code });
      welcome(joined);
      navigate(`/leagues/${joined.league.id}`);
    } catch (error) {
      setFault(joinMessage(error));
      setBusy(false);
    }
  }
  return (
    <form className="join-form" onSubmit={submit} noValidate>
      <div className="field">
        <label htmlFor="invite-code">{label}</label>
        <div className="join-line">
          <input
            id="invite-code"
            autoComplete="off"
            autoCapitalize="characters"
            autoCorrect="off"
            spellCheck={false}
            enterKeyHint="go"
            placeholder="K7MP-Q2RS"
            value={text}
            onChange={(event) => setText(event.target.value)}
            aria-invalid={fault !== ""}
            aria-describedby={fault ? "invite-code-fault" : undefined}
          />
          <button type="submit" className="button quiet" disabled={isBusy || text.trim() === ""}>
            {isBusy ? "Joining…" : "Join"}
          </button>
        </div>
        {fault && (
          <p id="invite-code-fault" className="fault" role="alert">
            {fault}
          </p>
        )}
      </div>
    </form>
  );
}
