import type { Ending } from "./session.ts";

/** Message between the tabs of one browser. */
type TabMessage =
  /** The fan changed coins, a prediction or a room, and other tabs must reload it. */
  { kind: "changed" } | { kind: "ended"; ending: Ending | undefined };

const channel = new BroadcastChannel("matchday");

export function postToTabs(message: TabMessage): void {
  channel.postMessage(message);
}

export function onTabMessage(handler: (message: TabMessage) => void): void {
  channel.addEventListener("message", ({ data }: MessageEvent<TabMessage>) => handler(data));
}
