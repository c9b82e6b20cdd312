import { useState } from "react";
import { matchday } from "../session/session.ts";
import { useResource } from "../ui/resource.ts";
import { errorMessage, Loaded } from "../ui/states.tsx";

type Switches = { reminders?: boolean; league_ranks?: boolean };

/** Switches for reminders of matches, and for places lost in leagues. */
export function Reminders() {
  const resource = useResource((signal) => matchday.get("/api/auth/me/notifications", { signal }), []);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  async function set(body: Switches) {
    setBusy(true);
    setError(undefined);
    try {
      const saved = await matchday.put("/api/auth/me/notifications", { body });
      resource.change(() => saved);
    } catch (error) {
      setError(error);
    }
    setBusy(false);
  }
  return (
    <section className="card" aria-labelledby="reminders">
      <header>
        <h2 id="reminders">Notifications</h2>
      </header>
      <Loaded resource={resource}>
        {({ data }) => (
          <>
            <Switch
              label="Remind me about my teams' matches"
              details="One hour before kick-off, if you haven't predicted or answered a question"
              isOn={data.reminders}
              isBusy={isBusy}
              onChange={(reminders) => set({ reminders })}
            />
            <Switch
              label="Tell me when I'm passed in a league"
              details="After each round"
              isOn={data.league_ranks}
              isBusy={isBusy}
              onChange={(league_ranks) => set({ league_ranks })}
            />
            {error !== undefined && (
              <p className="notice" role="alert">
                {errorMessage(error)}
              </p>
            )}
          </>
        )}
      </Loaded>
    </section>
  );
}

function Switch(props: {
  label: string;
  details: string;
  isOn: boolean;
  isBusy: boolean;
  onChange: (isOn: boolean) => void;
}) {
  return (
    <label className="switch">
      <span>
        {props.label}
        <span className="small soft">{props.details}</span>
      </span>
      <input
        type="checkbox"
        role="switch"
        checked={props.isOn}
        aria-checked={props.isOn}
        disabled={props.isBusy}
        onChange={(event) => props.onChange(event.target.checked)}
      />
    </label>
  );
}
