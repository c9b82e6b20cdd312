import { useSyncExternalStore } from "react";
import { onNote, tellTabs } from "../session/tabs.ts";

/** Reloads of everything that is shown. `useAnswer` adds its own. */
export const reloads = new Set<() => void>();
const pause = 10_000;
let last = Date.now();
let isStale = false;

function refresh(): void {
  // A hidden tab waits until the fan looks at it.
  isStale = document.hidden;
  if (isStale) return;
  last = Date.now();
  for (const reload of reloads) reload();
}

function looked(): void {
  if (!document.hidden && (isStale || Date.now() - last > pause)) refresh();
}

document.addEventListener("visibilitychange", looked);
window.addEventListener("focus", looked);
window.addEventListener("online", refresh);
onNote(({ kind }) => {
  if (kind === "changed") refresh();
});

/** Tells the other tabs that the fan changed something. */
export const changed = (): void => tellTabs({ kind: "changed" });

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
