import type { Ending } from "./session.ts";

/** Messages between the tabs of one browser. */
type Note =
  /** The fan changed something: coins, a prediction, a room. Other tabs load it again. */
  { kind: "changed" } | { kind: "ended"; ending: Ending | undefined };

const channel = new BroadcastChannel("matchday");

export function tellTabs(note: Note): void {
  channel.postMessage(note);
}

export function onNote(handler: (note: Note) => void): void {
  channel.addEventListener("message", ({ data }: MessageEvent<Note>) => handler(data));
}
