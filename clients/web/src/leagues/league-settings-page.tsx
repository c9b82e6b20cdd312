import { MatchdayError } from "@matchday/client";
import { type FormEvent, useState } from "react";
import { Redirect } from "wouter";
import { matchday } from "../session/session.ts";
import { Back } from "../ui/back.tsx";
import { Page } from "../ui/page.tsx";
import { Ask } from "../ui/question.tsx";
import { notifyTabs } from "../ui/refresh.ts";
import { errorMessage, Loaded } from "../ui/states.tsx";
import { Invite } from "./invite.tsx";
import type { League } from "./join.ts";
import { useLeague } from "./league-page.tsx";
import "./leagues.css";
import { Members } from "./members.tsx";
import { sizeFault } from "./size.ts";

/** Tools of the owner: name, size, invite link and members. */
export function LeagueSettingsPage({ id }: { id: number }) {
  const resource = useLeague(id);
  return (
    <Page
      title="League settings"
      className="league-settings"
      before={<Back to={`/leagues/${id}`}>{resource.data?.name ?? "League"}</Back>}
    >
      <Loaded resource={resource}>
        {(league) =>
          league.me?.role === "owner" ? (
            <div className="league-halves">
              <div className="stack">
                <Basics league={league} saved={(league) => resource.change(() => league)} />
                {league.code !== null && (
                  <Invite code={league.code} name={league.name}>
                    <NewCode id={id} changed={(code) => resource.change((league) => ({ ...league, code }))} />
                  </Invite>
                )}
              </div>
              <Members league={league} removed={resource.reload} />
            </div>
          ) : (
            <Redirect to={`/leagues/${id}`} replace />
          )
        }
      </Loaded>
    </Page>
  );
}

function Basics({ league, saved }: { league: League; saved: (league: League) => void }) {
  const [name, setName] = useState(league.name);
  const [size, setSize] = useState(String(league.max_members));
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const [message, setMessage] = useState("");
  const faults = error instanceof MatchdayError ? error.errors : {};
  const isChanged = name.trim() !== league.name || Number(size) !== league.max_members;
  async function submit(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    setMessage("");
    try {
      const body = { name: name.trim(), max_members: Number(size) };
      const { data } = await matchday.patch("/api/auth/leagues/{league}", {
        params: { path: { league: league.id } },
        body,
      });
      saved(data);
      setName(data.name);
      setMessage("Saved");
      notifyTabs();
    } catch (error) {
      setError(error);
    }
    setBusy(false);
  }
  return (
    <form className="card stack" onSubmit={submit} noValidate aria-label="Name and size">
      <div className="field">
        <label htmlFor="league-name">Name</label>
        <input
          id="league-name"
          dir="auto"
          autoComplete="off"
          maxLength={100}
          value={name}
          onChange={(event) => setName(event.target.value)}
          aria-invalid={faults.name !== undefined}
          aria-describedby={faults.name && "league-name-fault"}
        />
        {faults.name && (
          <p id="league-name-fault" className="fault" role="alert">
            {faults.name[0]}
          </p>
        )}
      </div>
      <div className="field">
        <label htmlFor="league-size">Maximum number of members</label>
        <input
          id="league-size"
          className="numbers"
          type="number"
          inputMode="numeric"
          min={Math.max(2, league.member_count)}
          value={size}
          onChange={(event) => setSize(event.target.value)}
          aria-invalid={faults.max_members !== undefined}
          aria-describedby={faults.max_members && "league-size-fault"}
        />
        {faults.max_members && (
          <p id="league-size-fault" className="fault" role="alert">
            {sizeFault(faults.max_members)}
          </p>
        )}
      </div>
      {error !== undefined && !faults.name && !faults.max_members && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
      <div className="save-line">
        <button type="submit" className="button" disabled={isBusy || !isChanged || name.trim() === ""}>
          {isBusy ? "Saving…" : "Save"}
        </button>
        <p role="status" className="small soft">
          {!isChanged && message}
        </p>
      </div>
    </form>
  );
}

/** Replaces the code, for example after the link became known to others. */
function NewCode({ id, changed }: { id: number; changed: (code: string) => void }) {
  return (
    <div className="new-code">
      <Ask
        label="Replace link and code"
        action="Replace"
        act={async () => {
          const { data } = await matchday.post("/api/auth/leagues/{league}/code", { params: { path: { league: id } } });
          changed(data.code);
        }}
      >
        Replace the link and the code? The present ones stop working at once. Members stay in the league.
      </Ask>
    </div>
  );
}
