import type { MatrixClient, MatrixEvent } from "matrix-js-sdk";
import { useCallback, useEffect, useState } from "react";
import { openChat, refusals } from "./matrix.ts";

export interface Message {
  id: string;
  /** The id on the homeserver; none while the message is being sent. */
  eventId: string | undefined;
  /** The username: the part of the chat id before the colon. */
  from: string;
  /** From the service's bot, which reports what happens in the match. */
  isNotice: boolean;
  isOwn: boolean;
  text: string;
  at: Date;
  state: "here" | "sending" | "failed";
  /** Why the homeserver refused it, as a Matrix error code. */
  refusal: string | undefined;
}

export interface Timeline {
  /** `undefined` until the first answer of the homeserver. */
  messages: Message[] | undefined;
  error: unknown;
  isConnected: boolean;
  /** Whether there are earlier messages to load. */
  hasEarlier: boolean;
  loadEarlier: () => Promise<void>;
  send: (text: string) => Promise<void>;
  /** Sends a failed message again with its transaction id: a message that arrived after all is not doubled. */
  retry: (id: string) => Promise<void>;
  /** Removes a failed message. */
  discard: (id: string) => Promise<void>;
  reopen: () => void;
}

const earlierAtOnce = 40;

/** The messages of a room, live. */
export function useTimeline(roomId: string): Timeline {
  const [messages, setMessages] = useState<Message[]>();
  const [hasEarlier, setHasEarlier] = useState(false);
  const [error, setError] = useState<unknown>();
  const [isConnected, setConnected] = useState(true);
  const [round, setRound] = useState(0);
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

  // biome-ignore lint/correctness/useExhaustiveDependencies: each round opens the chat again
  useEffect(() => {
    let isOver = false;
    let leave = () => {};
    openChat().then(
      (client) => {
        if (isOver) return;
        const changed = () => read(client);
        const synced = (state: string) => {
          setConnected(state === "PREPARED" || state === "SYNCING");
          read(client);
        };
        // By their names, so that the library is not loaded for them.
        const on = client.on.bind(client) as (name: string, handler: (...told: never[]) => void) => void;
        const off = client.off.bind(client) as typeof on;
        const heard = {
          "Room.timeline": changed,
          "Room.localEchoUpdated": changed,
          "Room.redaction": changed,
          Room: changed,
          sync: synced,
        };
        for (const [name, handler] of Object.entries(heard)) on(name, handler);
        leave = () => {
          for (const [name, handler] of Object.entries(heard)) off(name, handler);
        };
        read(client);
      },
      (error) => !isOver && setError(error),
    );
    refusals.add(reopen);
    return () => {
      isOver = true;
      leave();
      refusals.delete(reopen);
    };
  }, [roomId, round]);

  const send = useCallback(
    async (text: string) => {
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
    await client.scrollback(room, earlierAtOnce);
    read(client);
  }, [roomId, read]);
  return { messages, error, isConnected, hasEarlier, loadEarlier, send, retry, discard, reopen };
}

async function failed(roomId: string, id: string): Promise<[MatrixClient, MatrixEvent | undefined]> {
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
        isNotice: from === "matchday",
        isOwn: event.getSender() === client.getUserId(),
        text: String(event.getContent().body),
        at: new Date(event.getTs()),
        state: event.status === "not_sent" ? "failed" : event.status === null ? "here" : "sending",
        refusal: event.error?.errcode,
      };
    });
}
