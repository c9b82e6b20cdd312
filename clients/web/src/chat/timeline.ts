import type { MatrixClient, MatrixEvent } from "matrix-js-sdk";
import { useCallback, useEffect, useState } from "react";
import type { Person } from "../people/person.ts";
import { openChat, refusals } from "./matrix.ts";
import { knownSender } from "./senders.ts";

export interface Message {
  id: string;
  /** Matrix event id; `undefined` until the homeserver has accepted the message. */
  eventId: string | undefined;
  /** Username: the part of the chat id before the colon. */
  from: string;
  /** The sender's account, if it is known. The homeserver does not name it. */
  sender: Person | undefined;
  /** Whether the service's bot sent it, for example to announce a goal. */
  isNotice: boolean;
  isOwn: boolean;
  text: string;
  at: Date;
  state: "sent" | "sending" | "failed";
  /** Error code with which the service or the homeserver refused it. */
  refusal: string | undefined;
}

export interface Timeline {
  /** `undefined` until the first sync. */
  messages: Message[] | undefined;
  error: unknown;
  isConnected: boolean;
  /** Whether a message waits until the busy room accepts it. */
  isWaiting: boolean;
  /** Whether the room has earlier messages to load. */
  hasEarlier: boolean;
  loadEarlier: () => Promise<void>;
  send: (text: string) => Promise<void>;
  /** Sends a failed message again with the same transaction id, so that it is never posted twice. */
  retry: (id: string) => Promise<void>;
  discard: (id: string) => Promise<void>;
  reopen: () => void;
}

/** Number of earlier messages to load at a time. */
const earlierCount = 40;

/** Messages of a room, kept up to date by the sync. Without a room, the homeserver is not contacted. */
export function useTimeline(roomId: string | undefined): Timeline {
  const [messages, setMessages] = useState<Message[]>();
  const [hasEarlier, setHasEarlier] = useState(false);
  const [error, setError] = useState<unknown>();
  const [isConnected, setConnected] = useState(true);
  const [round, setRound] = useState(0);
  // Messages of the previous room must not be shown, even for one render.
  const [openRoom, setOpenRoom] = useState(roomId);
  if (openRoom !== roomId) {
    setOpenRoom(roomId);
    setMessages(undefined);
    setHasEarlier(false);
    setError(undefined);
    setConnected(true);
  }
  const reopen = useCallback(() => {
    setError(undefined);
    setRound((round) => round + 1);
  }, []);
  const read = useCallback(
    (client: MatrixClient) => {
      const room = client.getRoom(roomId);
      if (!room) return;
      setMessages(messagesOf(client, room.getLiveTimeline().getEvents()));
      setHasEarlier(room.oldState.paginationToken !== null);
    },
    [roomId],
  );

  // biome-ignore lint/correctness/useExhaustiveDependencies: each round reopens the chat
  useEffect(() => {
    if (roomId === undefined) return;
    let isUnmounted = false;
    let unsubscribe = () => {};
    openChat().then(
      (client) => {
        if (isUnmounted) return;
        const changed = () => read(client);
        const synced = (state: string) => {
          setConnected(state === "PREPARED" || state === "SYNCING");
          read(client);
        };
        // Event names as strings: importing the constants would load the library.
        const on = client.on.bind(client) as (name: string, handler: (...values: never[]) => void) => void;
        const off = client.off.bind(client) as typeof on;
        const handlers = {
          "Room.timeline": changed,
          "Room.localEchoUpdated": changed,
          "Room.redaction": changed,
          Room: changed,
          sync: synced,
        };
        for (const [name, handler] of Object.entries(handlers)) on(name, handler);
        unsubscribe = () => {
          for (const [name, handler] of Object.entries(handlers)) off(name, handler);
        };
        read(client);
      },
      (error) => !isUnmounted && setError(error),
    );
    refusals.add(reopen);
    return () => {
      isUnmounted = true;
      unsubscribe();
      refusals.delete(reopen);
    };
  }, [roomId, round]);

  const send = useCallback(
    async (text: string) => {
      if (roomId === undefined) return;
      const client = await openChat();
      await client.sendTextMessage(roomId, text);
    },
    [roomId],
  );
  const retry = useCallback(
    async (id: string) => {
      const [client, event] = await failed(roomId, id);
      const room = client.getRoom(roomId);
      if (event && room) await client.resendEvent(event, room);
    },
    [roomId],
  );
  const discard = useCallback(
    async (id: string) => {
      const [client, event] = await failed(roomId, id);
      if (event) client.cancelPendingEvent(event);
    },
    [roomId],
  );
  const loadEarlier = useCallback(async () => {
    const client = await openChat();
    const room = client.getRoom(roomId);
    if (!room) return;
    await client.scrollback(room, earlierCount);
    read(client);
  }, [roomId, read]);
  return { messages, error, isConnected, isWaiting: false, hasEarlier, loadEarlier, send, retry, discard, reopen };
}

async function failed(roomId: string | undefined, id: string): Promise<[MatrixClient, MatrixEvent | undefined]> {
  const client = await openChat();
  const events = client.getRoom(roomId)?.getLiveTimeline().getEvents() ?? [];
  return [client, events.find((event) => event.status === "not_sent" && idOf(event) === id)];
}

const idOf = (event: MatrixEvent) => event.getTxnId() ?? event.getId() ?? "";

function messagesOf(client: MatrixClient, events: MatrixEvent[]): Message[] {
  return events
    .filter((event) => event.getType() === "m.room.message" && !event.isRedacted() && event.getContent().body)
    .map((event) => {
      const from = (event.getSender() ?? "").replace(/^@/, "").replace(/:.*$/, "");
      return {
        id: idOf(event),
        eventId: event.status === null ? event.getId() : undefined,
        from,
        sender: knownSender(from),
        isNotice: from === "matchday",
        isOwn: event.getSender() === client.getUserId(),
        text: String(event.getContent().body),
        at: new Date(event.getTs()),
        state: event.status === "not_sent" ? "failed" : event.status === null ? "sent" : "sending",
        refusal: event.error?.errcode,
      };
    });
}
