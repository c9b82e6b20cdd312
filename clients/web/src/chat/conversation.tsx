import { type FormEvent, useLayoutEffect, useRef, useState } from "react";
import { Loading, Problem } from "../ui/states.tsx";
import { timeOfDay } from "../ui/time.ts";
import { Report } from "./report.tsx";
import { type Message, useTimeline } from "./timeline.ts";

/** What is said in a room, and a line to say something. */
export function Conversation({ roomId }: { roomId: string }) {
  const { messages, error, isConnected, send, reopen } = useTimeline(roomId);
  if (error !== undefined) return <Problem error={error} retry={reopen} />;
  return (
    <>
      {messages ? <Messages roomId={roomId} messages={messages} /> : <Loading what="Opening the chat" />}
      <p role="status" className={isConnected ? "unseen" : "small soft"}>
        {isConnected ? "" : "Chat is connecting again…"}
      </p>
      <Say send={send} isReady={messages !== undefined} />
    </>
  );
}

function Messages({ roomId, messages }: { roomId: string; messages: Message[] }) {
  const list = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const last = messages.at(-1)?.id;
  // Whoever reads what was said before is left there.
  // biome-ignore lint/correctness/useExhaustiveDependencies: when there is something new
  useLayoutEffect(() => {
    if (isAtEnd.current && list.current) list.current.scrollTop = list.current.scrollHeight;
  }, [last]);
  return (
    <div
      ref={list}
      className="messages"
      role="log"
      aria-label="Messages"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard
      tabIndex={0}
      onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
        isAtEnd.current = scrollHeight - scrollTop - clientHeight < 40;
      }}
    >
      {messages.length === 0 && <p className="empty">Nobody has said anything yet.</p>}
      {messages.map((message, number) => (
        <Line
          key={message.id}
          roomId={roomId}
          message={message}
          follows={messages[number - 1]?.from === message.from}
        />
      ))}
    </div>
  );
}

function Line({ roomId, message, follows }: { roomId: string; message: Message; follows: boolean }) {
  const { from, text, at, isOwn, isNotice, state } = message;
  if (isNotice) return <p className="announcement">{text}</p>;
  return (
    <div className={`message${isOwn ? " own" : ""}${follows ? " follows" : ""}`}>
      <p className="message-from">
        <strong>{isOwn ? "You" : from}</strong> <time dateTime={at.toISOString()}>{timeOfDay(at)}</time>
      </p>
      <p className="message-text">{text}</p>
      {state !== "here" && <p className="small soft">{state === "sending" ? "Sending…" : "It was not sent."}</p>}
      {!isOwn && message.eventId && <Report roomId={roomId} eventId={message.eventId} from={from} />}
    </div>
  );
}

function Say({ send, isReady }: { send: (text: string) => Promise<void>; isReady: boolean }) {
  const [text, setText] = useState("");
  const [fault, setFault] = useState("");
  async function submit(event: FormEvent) {
    event.preventDefault();
    const words = text.trim();
    if (!words) return;
    setText("");
    setFault("");
    try {
      await send(words);
    } catch (error) {
      setText(words);
      setFault(isMuted(error) ? "You may read here, but not write." : "It was not sent. Try again.");
    }
  }
  return (
    <form className="say" onSubmit={submit}>
      <label htmlFor="say" className="unseen">
        Message
      </label>
      <input
        id="say"
        autoComplete="off"
        placeholder="Say something"
        maxLength={2000}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <button type="submit" className="button" disabled={!isReady || !text.trim()}>
        Send
      </button>
      {fault && (
        <p className="fault" role="alert">
          {fault}
        </p>
      )}
    </form>
  );
}

function isMuted(error: unknown): boolean {
  return typeof error === "object" && error !== null && "errcode" in error && error.errcode === "M_USER_SUSPENDED";
}
