import type { MatrixClient, MatrixEvent } from "matrix-js-sdk";
import { useCallback, useEffect, useState } from "react";
import { openChat, refusals } from "./matrix.ts";

export interface Message {
  id: string;
  /** What the homeserver calls it, once it has it. */
  eventId: string | undefined;
  /** The username: the part of the chat id before the colon. */
  from: string;
  /** Of the service's bot, which tells what happens in the match. */
  isNotice: boolean;
  isOwn: boolean;
  text: string;
  at: Date;
  state: "here" | "sending" | "failed";
}

export interface Timeline {
  /** `undefined` until the homeserver told what was said. */
  messages: Message[] | undefined;
  error: unknown;
  isConnected: boolean;
  send: (text: string) => Promise<void>;
  reopen: () => void;
}

/** What is said in a room, as it is said. */
export function useTimeline(roomId: string): Timeline {
  const [messages, setMessages] = useState<Message[]>();
  const [error, setError] = useState<unknown>();
  const [isConnected, setConnected] = useState(true);
  const [round, setRound] = useState(0);
  const reopen = useCallback(() => {
    setError(undefined);
    setRound((round) => round + 1);
  }, []);

  // biome-ignore lint/correctness/useExhaustiveDependencies: each round opens the chat anew
  useEffect(() => {
    let isOver = false;
    let leave = () => {};
    openChat().then(
      (client) => {
        if (isOver) return;
        const read = () => {
          const room = client.getRoom(roomId);
          if (room) setMessages(messagesOf(client, room.getLiveTimeline().getEvents()));
        };
        const synced = (state: string) => {
          setConnected(state === "PREPARED" || state === "SYNCING");
          read();
        };
        // By their names, so that the library is not loaded for them.
        const on = client.on.bind(client) as (name: string, handler: (...told: never[]) => void) => void;
        const off = client.off.bind(client) as typeof on;
        const heard = {
          "Room.timeline": read,
          "Room.localEchoUpdated": read,
          "Room.redaction": read,
          Room: read,
          sync: synced,
        };
        for (const [name, handler] of Object.entries(heard)) on(name, handler);
        leave = () => {
          for (const [name, handler] of Object.entries(heard)) off(name, handler);
        };
        read();
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
  return { messages, error, isConnected, send, reopen };
}

function messagesOf(client: MatrixClient, events: MatrixEvent[]): Message[] {
  return events
    .filter((event) => event.getType() === "m.room.message" && !event.isRedacted() && event.getContent().body)
    .map((event) => {
      const from = (event.getSender() ?? "").replace(/^@/, "").replace(/:.*$/, "");
      return {
        id: event.getTxnId() ?? event.getId() ?? "",
        eventId: event.status === null ? event.getId() : undefined,
        from,
        isNotice: from === "matchday",
        isOwn: event.getSender() === client.getUserId(),
        text: String(event.getContent().body),
        at: new Date(event.getTs()),
        state: event.status === "not_sent" ? "failed" : event.status === null ? "here" : "sending",
      };
    });
}
