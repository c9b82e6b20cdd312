import type { ResponseBody, Schemas } from "@matchday/client";
import { useState } from "react";
import { matchday } from "../session/session.ts";
import { notifyTabs } from "../ui/refresh.ts";
import { useResource } from "../ui/resource.ts";
import { errorMessage, Loaded } from "../ui/states.tsx";
import { dateAndTime } from "../ui/time.ts";

type Device = ResponseBody<"/api/auth/devices", "get">["data"][number];

const platforms: Record<Device["platform"], string> = {
  fcm: "Android app",
  apns: "iPhone or iPad app",
  web: "Browser",
};

interface Props {
  /** Browsers that were registered for reminders only. */
  browsers: Schemas["PushSubscription"][];
  loadBrowsers: () => Promise<void>;
}

/** Devices that get the fan's notifications. */
export function Devices({ browsers, loadBrowsers }: Props) {
  const resource = useResource(
    async (signal) => (await matchday.get("/api/auth/devices", { signal })).data,
    [],
    "devices",
  );
  const [error, setError] = useState<unknown>();
  async function remove(request: () => Promise<unknown>, reload: () => unknown) {
    setError(undefined);
    try {
      await request().then(notifyTabs).finally(reload);
    } catch (error) {
      setError(error);
    }
  }
  return (
    <section className="card" aria-labelledby="devices">
      <header>
        <h2 id="devices">Devices</h2>
      </header>
      {error !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
      <Loaded resource={resource}>
        {(devices) =>
          devices.length + browsers.length === 0 ? (
            <p className="soft">No devices yet. A device appears here when you allow notifications on it.</p>
          ) : (
            <ul className="sessions">
              {devices.map(({ id, platform, deliverable, created_at, updated_at }) => (
                <Item
                  key={id}
                  name={platforms[platform]}
                  details={`Last registered ${dateAndTime(updated_at ?? created_at)}`}
                  problem={deliverable ? undefined : "This device can't get notifications at the moment."}
                  remove={() =>
                    remove(
                      () => matchday.delete("/api/auth/devices/{device}", { params: { path: { device: id } } }),
                      resource.reload,
                    )
                  }
                />
              ))}
              {browsers.map(({ id, host, created_at }) => (
                <Item
                  key={`browser ${id}`}
                  name={platforms.web}
                  details={`Reminders only, through ${host}, since ${dateAndTime(created_at)}`}
                  remove={() =>
                    remove(
                      () => matchday.delete("/api/auth/me/notifications/push/{id}", { params: { path: { id } } }),
                      loadBrowsers,
                    )
                  }
                />
              ))}
            </ul>
          )
        }
      </Loaded>
    </section>
  );
}

interface ItemProps {
  name: string;
  details: string;
  problem?: string | undefined;
  remove: () => Promise<void>;
}

function Item({ name, details, problem, remove }: ItemProps) {
  return (
    <li>
      <span>
        {name}
        <span className="small soft">{details}</span>
        {problem && <span className="small fault">{problem}</span>}
      </span>
      <button type="button" className="button quiet low" aria-label={`Remove: ${name}, ${details}`} onClick={remove}>
        Remove
      </button>
    </li>
  );
}
