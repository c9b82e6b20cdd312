import type { Schemas } from "@matchday/client";
import { useCallback, useEffect, useState } from "react";
import { matchday, useMe } from "../session/session.ts";
import { useIsInUse } from "../ui/refresh.ts";
import * as outbox from "./outbox.ts";
import { rememberSender } from "./senders.ts";
import type { Message, Timeline } from "./timeline.ts";

/** Number of messages kept on the page. */
const mostMessages = 500;

/**
 * Messages of a match's room as a spectator reads them: over the live stream, without joining the room or connecting to the
 * homeserver. The first message joins. Without a room, the stream is closed.
 *
 * The stream is a second one beside that of `LiveProvider`, because `room_id` limits the other events to the match of the
 * room, and the app announces the goals of all matches. A user can have few streams, so a hidden tab closes this one.
 */
export function useView(match: number, roomId: string | undefined): Timeline {
  const { me } = useMe();
  const [received, setReceived] = useState<Message[]>();
  const [isConnected, setConnected] = useState(true);
  const [error, setError] = useState<unknown>();
  const [round, setRound] = useState(0);
  const outgoing = outbox.useOutbox(match);
  const isInUse = useIsInUse();

  // Messages of the previous room must not be shown, even for one render.
  const [openRoom, setOpenRoom] = useState(roomId);
  if (openRoom !== roomId) {
    setOpenRoom(roomId);
    setReceived(undefined);
    setConnected(true);
    setError(undefined);
  }

  // biome-ignore lint/correctness/useExhaustiveDependencies: each round reopens the stream
  useEffect(() => {
    if (roomId === undefined || !isInUse) return;
    const own = new AbortController();
    const follow = async () => {
      const onConnection = (isOpen: boolean) => !own.signal.aborted && setConnected(isOpen);
      const options = { signal: own.signal, onConnection };
      let replayed: Message[] = [];
      for await (const event of matchday.stream({ room_id: roomId, chat: true }, options)) {
        if (event.kind !== "chat") continue;
        const { data } = event;
        if (data.type === "message") {
          const message = messageOf(data, me.id);
          if (data.replay) replayed.push(message);
          // A reconnect replays messages that the page has already.
          setReceived(withMessage(message));
        } else if (data.type === "removal") {
          setReceived((known) => known?.filter(({ id }) => id !== data.event_id));
        } else {
          const [replay, oldest] = [new Set(replayed.map(({ id }) => id)), replayed[0]?.at];
          replayed = [];
          // A message that is not repeated was removed while the stream was interrupted.
          setReceived((known = []) => known.filter(({ id, at }) => !oldest || at < oldest || replay.has(id)));
        }
      }
    };
    follow().catch((error) => !own.signal.aborted && setError(error));
    return () => own.abort();
  }, [roomId, round, isInUse]);

  // The stream shows a sent message too. This copy may be first.
  const sent = useCallback((message: Message) => setReceived(withMessage(message)), []);
  const send = useCallback(
    async (text: string) => {
      if (roomId !== undefined) await outbox.send(match, roomId, text, sent);
    },
    [match, roomId, sent],
  );
  const retry = useCallback((id: string) => outbox.retry(match, id, sent), [match, sent]);
  const discard = useCallback(async (id: string) => outbox.discard(match, id), [match]);
  const reopen = useCallback(() => {
    setError(undefined);
    setRound((round) => round + 1);
  }, []);
  return {
    messages: received && [...received, ...outgoing],
    error,
    isConnected,
    isWaiting: outgoing.some(({ isWaiting }) => isWaiting),
    hasEarlier: false,
    loadEarlier: async () => {},
    send,
    retry,
    discard,
    reopen,
  };
}

const withMessage =
  (message: Message) =>
  (known: Message[] = []): Message[] =>
    known.some(({ id }) => id === message.id) ? known : [...known, message].slice(-mostMessages);

function messageOf(item: Extract<Schemas["StreamChat"], { type: "message" }>, me: number): Message {
  const { user_id, username } = item.sender;
  const sender = user_id === null ? undefined : { ...item.sender, id: user_id };
  if (sender) rememberSender(sender);
  return {
    id: item.event_id,
    eventId: item.event_id,
    from: username,
    sender,
    isNotice: user_id === null && username === "matchday",
    isOwn: user_id === me,
    text: item.body,
    at: new Date(item.sent_at),
    state: "sent",
    refusal: undefined,
  };
}
