import { useState } from "react";
import { matchday } from "../session/session.ts";
import { useResource } from "../ui/resource.ts";
import { errorMessage, Loaded } from "../ui/states.tsx";
import { dateAndTime } from "../ui/time.ts";

/** List of the fan's sessions on all devices. */
export function Sessions() {
  const resource = useResource((signal) => matchday.get("/api/auth/sessions", { signal }), []);
  const [error, setError] = useState<unknown>();
  async function end(id: number) {
    setError(undefined);
    try {
      await matchday.delete("/api/auth/sessions/{id}", { params: { path: { id } } });
      resource.reload();
    } catch (error) {
      setError(error);
    }
  }
  return (
    <section className="card" aria-labelledby="sessions">
      <header>
        <h2 id="sessions">Active sessions</h2>
      </header>
      {error !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
      <Loaded resource={resource}>
        {({ data }) => (
          <ul className="sessions">
            {data.map(({ id, user_agent, current, last_used_at }) => (
              <li key={id}>
                <span>
                  {device(user_agent)}
                  <span className="small soft">
                    {current ? "This device" : `Last used ${dateAndTime(last_used_at)}`}
                  </span>
                </span>
                {!current && (
                  <button
                    type="button"
                    className="button quiet low"
                    aria-label={`End session: ${device(user_agent)}`}
                    onClick={() => end(id)}
                  >
                    End
                  </button>
                )}
              </li>
            ))}
          </ul>
        )}
      </Loaded>
    </section>
  );
}

/** Browser and operating system of a `User-Agent`, or its first 40 characters. */
function device(agent: string): string {
  const browser = /(Firefox|Edg|OPR|Chrome|Safari)\//.exec(agent)?.[1];
  const system = /(Android|iPhone|iPad|Windows|Mac OS X|Linux)/.exec(agent)?.[1];
  const name = { Edg: "Edge", OPR: "Opera" }[browser ?? ""] ?? browser;
  return (
    [name, system && `on ${system.replace("Mac OS X", "macOS")}`].filter(Boolean).join(" ") ||
    agent.slice(0, 40) ||
    "Unknown device"
  );
}
