import { MatchdayError, type Schemas } from "@matchday/client";
import { useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { matchday } from "../session/session.ts";
import { notifyTabs } from "../ui/refresh.ts";
import { useResource } from "../ui/resource.ts";
import { errorMessage, Loaded } from "../ui/states.tsx";
import "./chat.css";
import { Conversation } from "./conversation.tsx";

/** Chat of a match. The service handles joins and assigns the room; messages go to the homeserver. */
export function Chat({ match }: { match: Schemas["Event"] }) {
  const rooms = useResource(
    async (signal) => {
      const query = { event_id: match.id, per_page: 100 };
      const { data } = await matchday.get("/api/auth/chat-rooms", { params: { query }, signal });
      // Stands are the official rooms of the match. Rooms that fans created about it have no stand number.
      return data.filter(({ stand }) => stand != null);
    },
    [match.id, match.chat_room_id],
    "rooms",
  );
  return (
    <section className="card chat" aria-labelledby="chat">
      <Loaded resource={rooms}>
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
      </Loaded>
    </section>
  );
}

type Joining = "idle" | "joining" | "in line";

function Join({ room, joined }: { room: string | null; joined: () => void }) {
  const [state, setState] = useState<Joining>("idle");
  const [error, setError] = useState<unknown>();
  const stop = useRef<AbortController>(undefined);
  // A fan who leaves the page leaves the line.
  useEffect(() => () => stop.current?.abort(), []);
  async function join() {
    if (!room) return;
    const own = new AbortController();
    stop.current = own;
    setState("joining");
    setError(undefined);
    try {
      await matchday.joinRoom(room, { signal: own.signal, onWaiting: () => setState("in line") });
      joined();
      notifyTabs();
    } catch (error) {
      if (own.signal.aborted) return;
      // The fan is a member of this stand or of another stand of the match. The reloaded list shows which.
      if (error instanceof MatchdayError && error.code === "already_a_member") return joined();
      setError(error);
      setState("idle");
    }
  }
  function leaveLine() {
    stop.current?.abort();
    setState("idle");
  }
  if (!room) return <p className="empty">The chat for this match is being set up.</p>;
  return (
    <div className="join">
      <p>Talk about this match with other fans.</p>
      {error !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(error)}
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
        <button type="button" className="button lantern" onClick={join} disabled={state !== "idle"}>
          {state === "joining" ? "Joining…" : error !== undefined ? "Try again" : "Join the chat"}
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
      notifyTabs();
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
          {errorMessage(error)}
        </span>
      )}
    </span>
  );
}
