import { MatchdayError } from "@matchday/client";
import { type FormEvent, useState } from "react";
import { matchday, useMe } from "../session/session.ts";
import { notifyTabs } from "../ui/refresh.ts";
import { errorMessage } from "../ui/states.tsx";

/** The fan's name. An empty field removes it; other users then see the username. */
export function NameForm() {
  const { me, reload } = useMe();
  const [name, setName] = useState(me.name ?? "");
  const [saved, setSaved] = useState(me.name ?? "");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const [message, setMessage] = useState("");
  const fault = error instanceof MatchdayError ? error.errors.name?.[0] : undefined;
  const isChanged = name.trim() !== saved;
  async function submit(event: FormEvent) {
    event.preventDefault();
    if (!isChanged || isBusy) return;
    setBusy(true);
    setError(undefined);
    setMessage("");
    try {
      const { data } = await matchday.post("/api/auth/update-user-info", { body: { name: name.trim() || null } });
      setName(data.name ?? "");
      setSaved(data.name ?? "");
      setMessage("Saved");
      reload();
      notifyTabs();
    } catch (error) {
      setError(error);
    }
    setBusy(false);
  }
  return (
    <form className="card stack" onSubmit={submit} noValidate aria-label="Name">
      <div className="field">
        <label htmlFor="own-name">Name</label>
        <input
          id="own-name"
          dir="auto"
          autoComplete="name"
          maxLength={100}
          value={name}
          onChange={(event) => setName(event.target.value)}
          aria-invalid={fault !== undefined}
          aria-describedby="own-name-help"
        />
        <p id="own-name-help" className={fault ? "fault" : "small soft"} role={fault ? "alert" : undefined}>
          {fault ?? "Without a name, others see your username."}
        </p>
      </div>
      {error !== undefined && !fault && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
      <div className="save-line">
        <button type="submit" className="button" disabled={isBusy || !isChanged}>
          {isBusy ? "Saving…" : "Save name"}
        </button>
        <p role="status" className="small soft">
          {!isChanged && message}
        </p>
      </div>
    </form>
  );
}
