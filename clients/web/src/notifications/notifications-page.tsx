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
  const load = async (signal?: AbortSignal) => (await matchday.get("/api/auth/me/notifications", { signal })).data;
  const resource = useResource(load, [], "notifications");
  const { message, error, save, send } = useSaving(resource);
  const set = (kind: Kind, isOn: boolean) =>
    save(
      (all) =>
        kind === "league_ranks" ? { ...all, league_ranks: isOn } : { ...all, kinds: { ...all.kinds, [kind]: isOn } },
      async () => {
        const body = kind === "league_ranks" ? { league_ranks: isOn } : { kinds: { [kind]: isOn } };
        return (await matchday.put("/api/auth/me/notifications", { body })).data;
      },
    );
  const setQuietHours = (quiet_hours: Schemas["QuietHours"] | null) =>
    send(async () => (await matchday.put("/api/auth/me/notifications", { body: { quiet_hours } })).data);
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
          {resource.data && <QuietHours hours={resource.data.quiet_hours} set={setQuietHours} />}
          <Devices browsers={resource.data?.push ?? []} loadBrowsers={() => send(load)} />
        </div>
      </div>
    </Page>
  );
}
