import { type FormEvent, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { Avatar } from "../people/avatar.tsx";
import { profilePath } from "../people/person.ts";
import { Drafts } from "../ui/drafts.ts";
import { Loading, Problem } from "../ui/states.tsx";
import { timeOfDay } from "../ui/time.ts";
import { Moderate, useIsModerator } from "./moderate.tsx";
import { useOutbox } from "./outbox.ts";
import { Report } from "./report.tsx";
import { type Message, type Timeline, useTimeline } from "./timeline.ts";
import { useView } from "./view.ts";

interface ConversationProps {
  match: number;
  /** Room that spectators read. */
  viewId: string | undefined;
  /** Room that the fan has joined. */
  joinedId: string | undefined;
  /** Seconds between two messages of a fan; 0 if the room is not in slow mode. */
  slowMode: number;
}

/**
 * Messages of a match's room, with a form to send one. A spectator becomes a member with the first message. The form then
 * keeps its text and focus, and the spectator's messages stay until those of the homeserver are there.
 */
export function Conversation({ match, viewId, joinedId, slowMode }: ConversationProps) {
  // The fan stays a spectator while a message is in the outbox, because the homeserver's timeline does not have it.
  const memberOf = useOutbox(match).length === 0 ? joinedId : undefined;
  const member = useTimeline(memberOf);
  const [isSpectator, setSpectator] = useState(memberOf === undefined);
  const isMemberReady = memberOf !== undefined && (member.messages !== undefined || member.error !== undefined);
  if (isSpectator ? isMemberReady : memberOf === undefined) setSpectator(!isSpectator);
  const view = useView(match, isSpectator ? viewId : undefined);
  const roomId = (isSpectator ? viewId : memberOf) ?? "";
  const timeline = isSpectator ? view : member;
  const isModerator = useIsModerator(joinedId);
  const { messages, error, isConnected, isWaiting, send, reopen } = timeline;
  /** Number of messages that the fan sent. The list scrolls to the end after each. */
  const [sent, setSent] = useState(0);
  if (error !== undefined) return <Problem error={error} retry={reopen} />;
  return (
    <>
      {messages ? (
        <Messages roomId={roomId} messages={messages} timeline={timeline} sent={sent} isModerator={isModerator} />
      ) : (
        <Loading what="Opening the chat" />
      )}
      <p role="status" className={isWaiting ? "in-line" : isConnected ? "unseen" : "chat-state small soft"}>
        {isWaiting ? "The chat is busy. You're in line…" : isConnected ? "" : "Reconnecting to the chat…"}
      </p>
      {slowMode > 0 && !isModerator && (
        <p className="small soft slow-mode">Slow mode: one message every {durationOf(slowMode)}.</p>
      )}
      <MessageForm
        match={match}
        send={(text) => {
          setSent((sent) => sent + 1);
          // The failure is shown below the message.
          send(text).catch(() => {});
        }}
        isReady={messages !== undefined}
      />
    </>
  );
}

interface MessagesProps {
  roomId: string;
  messages: Message[];
  timeline: Timeline;
  sent: number;
  isModerator: boolean;
}

/** The list follows the newest message, unless the reader has scrolled up. */
function Messages({ roomId, messages, timeline, sent, isModerator }: MessagesProps) {
  const { hasEarlier, loadEarlier } = timeline;
  const list = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const fromEnd = useRef(0);
  const size = useRef("");
  const [unread, setUnread] = useState(0);
  const [isLoading, setLoading] = useState(false);
  const ids = useRef(new Set<string>());

  const toEnd = useCallback(() => {
    isAtEnd.current = true;
    setUnread(0);
    const box = list.current;
    if (!box) return;
    box.scrollTop = box.scrollHeight;
    size.current = sizeOf(box);
  }, []);

  const first = messages[0]?.id;
  const last = messages.at(-1)?.id;
  // When earlier messages are added above, the visible messages keep their position.
  // biome-ignore lint/correctness/useExhaustiveDependencies: runs when earlier messages are added
  useLayoutEffect(() => {
    const box = list.current;
    if (box && !isAtEnd.current) box.scrollTop = box.scrollHeight - fromEnd.current;
  }, [first]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: runs when a message is added
  useLayoutEffect(() => {
    const before = ids.current;
    ids.current = new Set(messages.map(({ id }) => id));
    if (isAtEnd.current) return toEnd();
    // Only messages after the last known one are unread. Earlier messages that were just loaded are not.
    const known = messages.findLastIndex(({ id }) => before.has(id));
    const fresh = messages.slice(known + 1).filter(({ isOwn }) => !isOwn).length;
    if (known >= 0 && fresh > 0) setUnread((unread) => unread + fresh);
  }, [last]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: runs after each sent message
  useLayoutEffect(() => {
    if (sent > 0) toEnd();
  }, [sent]);
  // The size changes when a phone shows its keyboard, when a hidden list becomes visible and when a font is loaded.
  useEffect(() => {
    const observer = new ResizeObserver(() => isAtEnd.current && toEnd());
    for (const part of [list.current, content.current]) if (part) observer.observe(part);
    return () => observer.disconnect();
  }, [toEnd]);

  async function earlier() {
    setLoading(true);
    // The next scroll to the top or the button retries.
    await loadEarlier().catch(() => {});
    setLoading(false);
  }
  function scrolled(box: HTMLDivElement) {
    // A hidden list has no size.
    if (box.clientHeight === 0) return;
    // If the size has changed since the list was moved to the end, the browser scrolled, not the reader.
    const isResized = size.current !== sizeOf(box);
    size.current = sizeOf(box);
    if (isAtEnd.current && isResized) return toEnd();
    fromEnd.current = box.scrollHeight - box.scrollTop;
    isAtEnd.current = fromEnd.current - box.clientHeight < 40;
    if (isAtEnd.current) setUnread(0);
    if (box.scrollTop < 80 && !isAtEnd.current && hasEarlier && !isLoading) earlier();
  }
  return (
    <div className="messages-frame">
      <div
        ref={list}
        className="messages"
        role="log"
        aria-label="Messages"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard
        tabIndex={0}
        onScroll={({ currentTarget }) => scrolled(currentTarget)}
      >
        <div ref={content} className="messages-content">
          {hasEarlier && (
            <button type="button" className="link earlier" onClick={earlier} disabled={isLoading}>
              {isLoading ? "Loading…" : "Earlier messages"}
            </button>
          )}
          {messages.length === 0 && <p className="empty">No messages yet. Say hello!</p>}
          {messages.map((message, number) => (
            <Line
              key={message.id}
              roomId={roomId}
              message={message}
              follows={messages[number - 1]?.from === message.from}
              timeline={timeline}
              isModerator={isModerator}
            />
          ))}
        </div>
      </div>
      {unread > 0 && (
        <button type="button" className="button lantern low new-messages" onClick={toEnd}>
          {unread} new {unread === 1 ? "message" : "messages"} <span aria-hidden="true">↓</span>
        </button>
      )}
    </div>
  );
}

const sizeOf = ({ clientHeight, scrollHeight }: HTMLElement) => `${clientHeight} of ${scrollHeight}`;

interface LineProps {
  roomId: string;
  message: Message;
  follows: boolean;
  timeline: Timeline;
  isModerator: boolean;
}

function Line({ roomId, message, follows, timeline, isModerator }: LineProps) {
  const { from, sender, text, at, isOwn, isNotice, state } = message;
  if (isNotice) return <Notice text={text} />;
  return (
    <div
      className={`message${isOwn ? " own" : ""}${follows ? " follows" : ""}${state === "failed" ? " failed" : ""}`}
      data-event={message.eventId}
    >
      {!isOwn && !follows && <Avatar user={sender ?? { id: 0, username: from, name: null }} size={28} />}
      <p className="message-from">
        <strong dir="auto">{isOwn ? "You" : <Link href={profilePath(sender?.id ?? from)}>{from}</Link>}</strong>{" "}
        <time dateTime={at.toISOString()}>{timeOfDay(at)}</time>
      </p>
      <p className="message-text" dir="auto">
        {text}
      </p>
      {state === "sending" && <p className="message-state small soft">Sending…</p>}
      {state === "failed" && <Failed message={message} timeline={timeline} />}
      {message.eventId &&
        state === "sent" &&
        (isOwn || isModerator ? (
          <Moderate roomId={roomId} eventId={message.eventId} from={from} isOwn={isOwn} />
        ) : (
          <Report roomId={roomId} eventId={message.eventId} from={from} />
        ))}
    </div>
  );
}

/** Announcement of a seal: "20 predictions sealed · Seal 5: 0ff3…". */
const sealNotice = /^(.+?) · (.*[0-9a-f]{64}.*)$/;

/** An announcement of the bot. The hash of a seal is shown on demand. */
function Notice({ text }: { text: string }) {
  const [, summary, hash] = sealNotice.exec(text) ?? [];
  if (!summary) {
    return (
      <p className="announcement" dir="auto">
        {text}
      </p>
    );
  }
  return (
    <details className="seal-notice">
      <summary className="announcement" dir="auto">
        <span>
          {summary} · <span className="seal-verify">Verify</span>
        </span>
      </summary>
      <p className="small" dir="auto">
        {hash}
      </p>
      <p className="small soft">
        Everyone in this chat has the same hash. It must match the one in the details of your own prediction.
      </p>
    </details>
  );
}

/** Explains why a message was not sent, and whether it can be sent again. */
function refusalOf(code: string | undefined): { text: string; canRetry: boolean } {
  switch (code) {
    case "M_USER_SUSPENDED":
    case "M_FORBIDDEN":
    case "muted":
    case "not_allowed":
      return { text: "Not sent. You can read this chat but can't post.", canRetry: false };
    case "message_refused":
      return { text: "Not sent. This message breaks the rules of the chat.", canRetry: false };
    case "slow_mode":
      return { text: "Not sent. The chat is in slow mode: wait a moment.", canRetry: true };
    default:
      return { text: "Not sent.", canRetry: true };
  }
}

const durationOf = (seconds: number) => (seconds % 60 === 0 ? `${seconds / 60} min` : `${seconds} s`);

function Failed({ message, timeline }: { message: Message; timeline: Timeline }) {
  const { text, canRetry } = refusalOf(message.refusal);
  return (
    <div className="message-state small" role="alert">
      <span className="fault">{text}</span>{" "}
      <span className="failed-actions">
        {canRetry && (
          <button type="button" className="link" onClick={() => timeline.retry(message.id).catch(() => {})}>
            Try again
          </button>
        )}
        <button type="button" className="link" onClick={() => timeline.discard(message.id).catch(() => {})}>
          Discard
        </button>
      </span>
    </div>
  );
}

/** Unsent message of each match. */
const drafts = new Drafts<string>();

interface MessageFormProps {
  match: number;
  send: (text: string) => void;
  isReady: boolean;
}

function MessageForm({ match, send, isReady }: MessageFormProps) {
  const text = drafts.useAll().get(match) ?? "";
  const setText = (text: string) => drafts.set(match, text || undefined);
  function submit(event: FormEvent) {
    event.preventDefault();
    const body = text.trim();
    if (!body) return;
    setText("");
    send(body);
  }
  return (
    <form className="say" onSubmit={submit}>
      <label htmlFor="say" className="unseen">
        Message
      </label>
      <input
        id="say"
        dir="auto"
        autoComplete="off"
        enterKeyHint="send"
        placeholder="Write a message"
        maxLength={2000}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <button type="submit" className="button" disabled={!isReady || !text.trim()}>
        Send
      </button>
    </form>
  );
}
