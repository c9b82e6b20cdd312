import { useState } from "react";
import { matchday } from "../session/session.ts";
import { useResource } from "../ui/resource.ts";
import { errorMessage, Loaded } from "../ui/states.tsx";

/** Switch for reminders of matches that the fan has not predicted. */
export function Reminders() {
  const resource = useResource((signal) => matchday.get("/api/auth/me/notifications", { signal }), []);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  async function set(reminders: boolean) {
    setBusy(true);
    setError(undefined);
    try {
      const saved = await matchday.put("/api/auth/me/notifications", { body: { reminders } });
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
            <label className="switch">
              <span>
                Remind me about my teams' matches
                <span className="small soft">One hour before kick-off, if you haven't predicted</span>
              </span>
              <input
                type="checkbox"
                role="switch"
                checked={data.reminders}
                aria-checked={data.reminders}
                disabled={isBusy}
                onChange={(event) => set(event.target.checked)}
              />
            </label>
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
