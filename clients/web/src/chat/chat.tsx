import type { Schemas } from "@matchday/client";
import { useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { matchday } from "../session/session.ts";
import { notifyTabs } from "../ui/refresh.ts";
import { useResource } from "../ui/resource.ts";
import { errorMessage, Loaded } from "../ui/states.tsx";
import "./chat.css";
import { Conversation } from "./conversation.tsx";
import { useOutbox } from "./outbox.ts";

/**
 * Chat of a match. A fan reads it as a spectator and joins with the first message: the service assigns the room. Members
 * are connected to the homeserver.
 */
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
  const { reload } = rooms;
  const isOutboxEmpty = useOutbox(match.id).length === 0;
  const wasOutboxEmpty = useRef(isOutboxEmpty);
  // A sent message has joined the room.
  useEffect(() => {
    if (isOutboxEmpty && !wasOutboxEmpty.current) {
      reload();
      notifyTabs();
    }
    wasOutboxEmpty.current = isOutboxEmpty;
  }, [isOutboxEmpty, reload]);
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
                      {members.toLocaleString("en")} {members === 1 ? "member" : "members"}
                    </span>
                  )
                )}
              </header>
              {joined || match.chat_room_id ? (
                <Conversation
                  key={match.id}
                  match={match.id}
                  viewId={match.chat_room_id ?? undefined}
                  joinedId={joined?.room_id}
                  slowMode={(joined ?? stands.find(({ room_id }) => room_id === match.chat_room_id))?.slow_mode ?? 0}
                />
              ) : (
                <p className="empty">The chat for this match is being set up.</p>
              )}
            </>
          );
        }}
      </Loaded>
    </section>
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
