import { MatchdayError } from "@matchday/client";
import { useSyncExternalStore } from "react";
import { matchday, onSessionEnd } from "../session/session.ts";
import type { Message } from "./timeline.ts";

/** A message that the fan sent as a spectator and that the service has not accepted. Its `id` is its idempotency key. */
export interface Outgoing extends Message {
  roomId: string;
  /** Whether the busy room has refused it, and it will be sent again. */
  isWaiting: boolean;
}

const none: readonly Outgoing[] = [];
/** By match. Outside of the components, so that a fan who leaves the chat and returns finds the messages again. */
const outboxes = new Map<number, readonly Outgoing[]>();
/** The last request of each match. */
const requests = new Map<number, Promise<void>>();
const listeners = new Set<() => void>();
let session = new AbortController();

onSessionEnd.add(() => {
  session.abort();
  session = new AbortController();
  outboxes.clear();
  requests.clear();
  notify();
});

function notify(): void {
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => {
    listeners.delete(listener);
  };
}

function update(match: number, how: (all: readonly Outgoing[]) => readonly Outgoing[]): void {
  const all = how(outboxes.get(match) ?? none);
  if (all.length > 0) outboxes.set(match, all);
  else outboxes.delete(match);
  notify();
}

export function useOutbox(match: number): readonly Outgoing[] {
  return useSyncExternalStore(subscribe, () => outboxes.get(match) ?? none);
}

type OnSent = (message: Message) => void;

/** Sends a message after those before it. Only the end of the session aborts it, because it may have been sent already. */
export function send(match: number, roomId: string, text: string, onSent: OnSent): Promise<void> {
  const message: Outgoing = {
    id: randomKey(),
    eventId: undefined,
    from: "",
    sender: undefined,
    isNotice: false,
    isOwn: true,
    text,
    at: new Date(),
    state: "sending",
    refusal: undefined,
    roomId,
    isWaiting: false,
  };
  update(match, (all) => [...all, message]);
  return post(match, message, onSent);
}

/** Sends a failed message again with the same key, so that it is never posted twice. */
export async function retry(match: number, id: string, onSent: OnSent): Promise<void> {
  const message = outboxes.get(match)?.find((message) => message.id === id);
  if (message?.state === "failed") await post(match, message, onSent);
}

export function discard(match: number, id: string): void {
  update(match, (all) => all.filter((message) => message.id !== id));
}

function post(match: number, message: Outgoing, onSent: OnSent): Promise<void> {
  const { id, roomId, text } = message;
  const { signal } = session;
  const change = (changes: Partial<Outgoing>) => {
    if (signal.aborted) return;
    update(match, (all) => all.map((message) => (message.id === id ? { ...message, ...changes } : message)));
  };
  change({ state: "sending", refusal: undefined });
  // One at a time: messages keep their order, and a fan takes one place in the line.
  const request = (requests.get(match) ?? Promise.resolve()).then(async () => {
    try {
      const onWaiting = () => change({ isWaiting: true });
      const sent = await matchday.sendMessage(roomId, text, { key: id, signal, onWaiting });
      if (signal.aborted) return;
      onSent({ ...message, id: sent.event_id, eventId: sent.event_id, state: "sent", refusal: undefined });
      discard(match, id);
    } catch (error) {
      const refusal = error instanceof MatchdayError ? error.code : undefined;
      change({ state: "failed", refusal, isWaiting: false });
    }
  });
  requests.set(match, request);
  return request;
}

/** Random idempotency key. `crypto.randomUUID` exists only in secure contexts (HTTPS or localhost). */
function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
