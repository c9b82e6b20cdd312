import { useEffect, useState, useSyncExternalStore } from "react";
import { onTabMessage, postToTabs } from "../session/tabs.ts";

/** Reload functions of all mounted resources, registered by `useResource`. */
export const reloads = new Set<() => void>();
/** Minimum time in milliseconds between two reloads when the fan returns to the tab. */
const minInterval = 10_000;
let lastReload = Date.now();
let isStale = false;

function refresh(): void {
  // A hidden tab reloads when it becomes visible.
  isStale = document.hidden;
  if (isStale) return;
  lastReload = Date.now();
  for (const reload of reloads) reload();
}

function onReturn(): void {
  if (!document.hidden && (isStale || Date.now() - lastReload > minInterval)) refresh();
}

document.addEventListener("visibilitychange", onReturn);
window.addEventListener("focus", onReturn);
window.addEventListener("online", refresh);
onTabMessage(({ kind }) => {
  if (kind === "changed") refresh();
});

/** Notifies the other tabs that the fan changed something. */
export const notifyTabs = (): void => postToTabs({ kind: "changed" });

export function useIsOnline(): boolean {
  return useSyncExternalStore(
    (listener) => {
      window.addEventListener("online", listener);
      window.addEventListener("offline", listener);
      return () => {
        window.removeEventListener("online", listener);
        window.removeEventListener("offline", listener);
      };
    },
    () => navigator.onLine,
  );
}

/** Time in milliseconds after which a hidden tab is no longer in use. */
const unusedAfter = 20_000;

/** Whether the tab is visible, or was until a moment ago. */
export function useIsInUse(): boolean {
  const [isInUse, setInUse] = useState(true);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const changed = () => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(() => setInUse(false), unusedAfter);
      else setInUse(true);
    };
    changed();
    document.addEventListener("visibilitychange", changed);
    return () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", changed);
    };
  }, []);
  return isInUse;
}
