import { MatchdayError, type Schemas } from "@matchday/client";
import { useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { matchday } from "../session/session.ts";
import { useAnswer } from "../ui/answer.ts";
import { changed } from "../ui/refresh.ts";
import { inWords, Shown } from "../ui/states.tsx";
import "./chat.css";
import { Conversation } from "./conversation.tsx";

/** The chat of a match. Joining goes through the service, which finds a room; messages go to the homeserver. */
export function Chat({ match }: { match: Schemas["Event"] }) {
  const rooms = useAnswer(
    async (signal) => {
      const query = { event_id: match.id, per_page: 100 };
      const { data } = await matchday.get("/api/auth/chat-rooms", { params: { query }, signal });
      // Stands are the match's own rooms; fans may open further ones about it.
      return data.filter(({ stand }) => stand != null);
    },
    [match.id, match.chat_room_id],
    "rooms",
  );
  return (
    <section className="card chat" aria-labelledby="chat">
      <Shown answer={rooms}>
        {(stands) => {
          const joined = stands.find(({ is_joined }) => is_joined);
          const members = stands.reduce((sum, { member_count }) => sum + member_count, 0);
          return (
            <>
              <header>
                <h2 id="chat">Match chat</h2>
                {joined ? (
                  <RoomLinks room={joined} left={rooms.reload} />
                ) : (
                  members > 0 && (
                    <span className="small soft numbers">
                      {members.toLocaleString("en")} {members === 1 ? "fan" : "fans"}
                    </span>
                  )
                )}
              </header>
              {joined ? (
                <Conversation roomId={joined.room_id} />
              ) : (
                <Join room={match.chat_room_id} joined={rooms.reload} />
              )}
            </>
          );
        }}
      </Shown>
    </section>
  );
}

type Joining = "no" | "asking" | "in line";

function Join({ room, joined }: { room: string | null; joined: () => void }) {
  const [state, setState] = useState<Joining>("no");
  const [error, setError] = useState<unknown>();
  const stop = useRef<AbortController>(undefined);
  // A fan who leaves the page leaves the line.
  useEffect(() => () => stop.current?.abort(), []);
  async function join() {
    if (!room) return;
    const own = new AbortController();
    stop.current = own;
    setState("asking");
    setError(undefined);
    try {
      await matchday.joinRoom(room, { signal: own.signal, onWaiting: () => setState("in line") });
      joined();
      changed();
    } catch (error) {
      if (own.signal.aborted) return;
      // Of this stand or of another one of the match: the list says which.
      if (error instanceof MatchdayError && error.code === "already_a_member") return joined();
      setError(error);
      setState("no");
    }
  }
  function leaveLine() {
    stop.current?.abort();
    setState("no");
  }
  if (!room) return <p className="empty">The chat for this match is being set up.</p>;
  return (
    <div className="join">
      <p>Talk about this match with other fans.</p>
      {error !== undefined && (
        <p className="notice" role="alert">
          {inWords(error)}
        </p>
      )}
      <p role="status" className={state === "in line" ? "in-line" : "unseen"}>
        {state === "in line" && "The chat is busy. You're in line…"}
      </p>
      {state === "in line" ? (
        <button type="button" className="button quiet" onClick={leaveLine}>
          Cancel
        </button>
      ) : (
        <button type="button" className="button lantern" onClick={join} disabled={state !== "no"}>
          {state === "asking" ? "Joining…" : error !== undefined ? "Try again" : "Join the chat"}
        </button>
      )}
    </div>
  );
}

function RoomLinks({ room, left }: { room: Schemas["ChatRoomListItem"]; left: () => void }) {
  const [error, setError] = useState<unknown>();
  async function leave() {
    try {
      await matchday.post("/api/auth/chat-rooms/{room}/leave", { params: { path: { room: room.room_id } } });
      left();
      changed();
    } catch (error) {
      setError(error);
    }
  }
  return (
    <span className="room-links small">
      <Link href={`/table/room/${encodeURIComponent(room.room_id)}`}>Leaderboard</Link>
      <button type="button" className="link" onClick={leave}>
        Leave
      </button>
      {error !== undefined && (
        <span className="fault" role="alert">
          {inWords(error)}
        </span>
      )}
    </span>
  );
}
