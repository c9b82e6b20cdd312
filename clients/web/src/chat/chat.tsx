import { MatchdayError, type Schemas } from "@matchday/client";
import { useState } from "react";
import { Link } from "wouter";
import { matchday } from "../session/session.ts";
import { useAnswer } from "../ui/answer.ts";
import { inWords, Shown } from "../ui/states.tsx";
import "./chat.css";
import { Conversation } from "./conversation.tsx";

/** The room of a match. Joining goes through the service, which finds a place; talking goes to the homeserver. */
export function Chat({ match }: { match: Schemas["Event"] }) {
  const rooms = useAnswer(
    async (signal) => {
      const query = { event_id: match.id, per_page: 100 };
      const { data } = await matchday.get("/api/auth/chat-rooms", { params: { query }, signal });
      // Stands are the match's own; fans may open further rooms about it.
      return data.filter(({ stand }) => stand != null);
    },
    [match.id, match.chat_room_id],
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
                <h2 id="chat">In the stand</h2>
                {joined ? (
                  <RoomLinks room={joined} left={rooms.reload} />
                ) : (
                  <span className="small soft">{members ? `${members} there` : "Nobody there yet"}</span>
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

function Join({ room, joined }: { room: string | null; joined: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  async function join() {
    if (!room) return;
    setBusy(true);
    setError(undefined);
    try {
      await matchday.post("/api/auth/chat-rooms/{room}/join", { params: { path: { room } } });
      joined();
    } catch (error) {
      // Of this stand or of another one of the match: the list says which.
      if (error instanceof MatchdayError && error.code === "already_a_member") return joined();
      setError(error);
      setBusy(false);
    }
  }
  if (!room) return <p className="empty">The room of this match is being made.</p>;
  return (
    <div className="join">
      <p>Every match has a room. Come in to read along and to have your say.</p>
      {error !== undefined && (
        <p className="notice" role="alert">
          {inWords(error)}
        </p>
      )}
      <button type="button" className="button lantern" onClick={join} disabled={isBusy}>
        {isBusy ? "Finding you a place…" : "Join the chat"}
      </button>
    </div>
  );
}

function RoomLinks({ room, left }: { room: Schemas["ChatRoomListItem"]; left: () => void }) {
  const [error, setError] = useState<unknown>();
  async function leave() {
    try {
      await matchday.post("/api/auth/chat-rooms/{room}/leave", { params: { path: { room: room.room_id } } });
      left();
    } catch (error) {
      setError(error);
    }
  }
  return (
    <span className="room-links small">
      <Link href={`/table/room/${encodeURIComponent(room.room_id)}`}>Its table</Link>
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
