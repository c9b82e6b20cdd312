import type { Schemas } from "@matchday/client";
import { matchday } from "../session/session.ts";
import { Back } from "../ui/back.tsx";
import { Page } from "../ui/page.tsx";
import { useResource } from "../ui/resource.ts";
import { useSaving } from "../ui/saving.ts";
import { errorMessage, Loaded } from "../ui/states.tsx";
import { Devices } from "./devices.tsx";
import { type Kind, KindSwitches } from "./kinds.tsx";
import "./notifications.css";
import { QuietHours } from "./quiet-hours.tsx";

/** Which notifications the fan gets, when, and on which devices. */
export function NotificationsPage() {
  const resource = useResource(
    async (signal) => (await matchday.get("/api/auth/me/notifications", { signal })).data,
    [],
    "notifications",
  );
  const { message, error, save } = useSaving(resource);
  const set = (kind: Kind, isOn: boolean) =>
    save(
      (all) =>
        kind === "league_ranks" ? { ...all, league_ranks: isOn } : { ...all, kinds: { ...all.kinds, [kind]: isOn } },
      async () => {
        const body = kind === "league_ranks" ? { league_ranks: isOn } : { kinds: { [kind]: isOn } };
        return (await matchday.put("/api/auth/me/notifications", { body })).data;
      },
    );
  const saved = (data: Schemas["Notifications"]) => resource.change(() => data);
  return (
    <Page title="Notifications" className="notifications" before={<Back to="/me">You</Back>}>
      <div className="settings-halves">
        <section className="card" aria-labelledby="kinds">
          <header>
            <h2 id="kinds">Notify me about</h2>
            <span role="status" className="small saved-mark">
              {message}
            </span>
          </header>
          <Loaded resource={resource}>
            {(settings) => (
              <div className="stack">
                {error !== undefined && (
                  <p className="notice" role="alert">
                    {errorMessage(error)} The setting hasn't changed.
                  </p>
                )}
                <KindSwitches settings={settings} set={set} />
              </div>
            )}
          </Loaded>
        </section>
        <div className="stack">
          {resource.data && <QuietHours hours={resource.data.quiet_hours} saved={saved} />}
          <Devices browsers={resource.data?.push ?? []} browserRemoved={resource.reload} />
        </div>
      </div>
    </Page>
  );
}
