import type { Schemas } from "@matchday/client";
import { useEffect, useRef, useState } from "react";
import { matchday, useMe } from "../session/session.ts";
import { Crest } from "../ui/crest.tsx";
import { Name } from "../ui/name.tsx";
import { allPages } from "../ui/pages.ts";
import { notifyTabs } from "../ui/refresh.ts";
import { useResource } from "../ui/resource.ts";
import { errorMessage, Loaded } from "../ui/states.tsx";

/** Most teams besides the favourite one. */
const mostOthers = 5;

/** Chooses the favourite team and up to five others. Each choice is saved at once. */
export function TeamsForm() {
  const { me, reload } = useMe();
  const resource = useResource(
    (signal) =>
      allPages((page) => matchday.get("/api/auth/teams", { params: { query: { page, per_page: 100 } }, signal })),
    [],
    "teams",
  );
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const [message, setMessage] = useState("");
  const { primary, other } = me.teams;
  const ids = other.map(({ id }) => id);
  // The other teams after all choices so far. `me` shows the last ones only when it has been loaded again.
  const others = useRef(ids);
  // The other teams that the service has accepted.
  const accepted = useRef(ids);
  const waiting = useRef(0);
  const queue = useRef<Promise<unknown>>(Promise.resolve());
  useEffect(() => {
    if (waiting.current > 0) return;
    accepted.current = other.map(({ id }) => id);
    others.current = accepted.current;
  }, [other]);
  // One request after another, because each replaces the whole list.
  async function save(request: () => Promise<unknown>) {
    waiting.current += 1;
    setBusy(true);
    setError(undefined);
    setMessage("");
    const saving = queue.current.then(request);
    queue.current = saving.catch(() => undefined);
    try {
      await saving;
      setMessage("Saved");
      notifyTabs();
    } catch (error) {
      setError(error);
    }
    waiting.current -= 1;
    if (waiting.current === 0) {
      // The next choice must not repeat one that failed.
      others.current = accepted.current;
      setBusy(false);
      reload();
    }
  }
  async function postOthers() {
    const team_ids = others.current;
    await matchday.post("/api/auth/teams/other", { body: { team_ids } });
    accepted.current = team_ids;
  }
  function saveOthers(team_ids: number[]) {
    others.current = team_ids;
    return save(postOthers);
  }
  const saveFavourite = (team_id: number) =>
    save(async () => {
      await matchday.post("/api/auth/teams/primary", { body: { team_id } });
      // A team is in one of the two lists.
      if (others.current.includes(team_id)) {
        others.current = others.current.filter((id) => id !== team_id);
        await postOthers();
      }
    });
  return (
    <section className="card stack" aria-labelledby="own-teams">
      <header className="with-status">
        <h2 id="own-teams">Favourite teams</h2>
        <span role="status" className="small saved-mark">
          {error === undefined && message}
        </span>
      </header>
      <Loaded resource={resource}>
        {(teams) => (
          <>
            <TeamSelect
              label="Favourite team"
              empty="Choose a team"
              teams={teams}
              value={primary?.id}
              isBusy={isBusy}
              choose={saveFavourite}
            />
            <div className="stack tight">
              {other.length < mostOthers ? (
                <TeamSelect
                  label="Other teams"
                  empty={other.length === 0 ? "Add a team" : "Add another team"}
                  teams={teams.filter(({ id }) => id !== primary?.id && !ids.includes(id))}
                  value={undefined}
                  isBusy={isBusy}
                  choose={(id) => {
                    // The options do not show the choices that wait yet.
                    const isNew = others.current.length < mostOthers && !others.current.includes(id);
                    if (isNew) saveOthers([...others.current, id]);
                  }}
                />
              ) : (
                <p className="small soft">You've chosen five other teams. Remove one to add another.</p>
              )}
              {other.length > 0 && (
                <ul className="chosen-teams" aria-label="Other teams">
                  {other.map((team) => (
                    <li key={team.id}>
                      <Crest team={team} size={26} />
                      <Name>{team.name}</Name>
                      <button
                        type="button"
                        className="button quiet low"
                        aria-label={`Remove: ${team.name}`}
                        disabled={isBusy}
                        onClick={() => saveOthers(others.current.filter((id) => id !== team.id))}
                      >
                        Remove
                      </button>
                    </li>
                  ))}
                </ul>
              )}
            </div>
          </>
        )}
      </Loaded>
      {error !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
    </section>
  );
}

interface SelectProps {
  label: string;
  empty: string;
  teams: Schemas["Team"][];
  value: number | undefined;
  isBusy: boolean;
  choose: (id: number) => void;
}

function TeamSelect({ label, empty, teams, value, isBusy, choose }: SelectProps) {
  const sorted = [...teams].sort((one, other) => one.name.localeCompare(other.name));
  return (
    <label className="field">
      <span className="field-label">{label}</span>
      <select
        className="select"
        value={value ?? ""}
        aria-busy={isBusy}
        onChange={({ target }) => target.value && choose(Number(target.value))}
      >
        {value === undefined && <option value="">{empty}</option>}
        {sorted.map(({ id, name }) => (
          <option key={id} value={id} dir="auto">
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
