import { useState } from "react";
import { matchday, useMe } from "../session/session.ts";
import { useResource } from "../ui/resource.ts";
import { errorMessage } from "../ui/states.tsx";

/** Seconds for which a moderator mutes a fan. */
const muteSeconds = 600;

/** Whether the fan moderates the room. */
export function useIsModerator(roomId: string | undefined): boolean {
  const { me } = useMe();
  const moderators = useResource(
    async (signal) => {
      if (!roomId) return [];
      const params = { path: { room: roomId } };
      return (await matchday.get("/api/auth/chat-rooms/{room}/moderators", { params, signal })).data;
    },
    [roomId],
    "moderators",
  );
  return moderators.data?.some(({ id }) => id === me.id) ?? false;
}

interface ModerateProps {
  roomId: string;
  eventId: string;
  from: string;
  isOwn: boolean;
}

/** Removes a message, as its sender or as a moderator, who can also mute the sender. The stream then removes it from view. */
export function Moderate({ roomId, eventId, from, isOwn }: ModerateProps) {
  const [isOpen, setOpen] = useState(false);
  const [error, setError] = useState<unknown>();
  const [note, setNote] = useState("");

  async function act(request: () => Promise<unknown>, done: string) {
    setError(undefined);
    try {
      await request();
      setNote(done);
      setOpen(false);
    } catch (error) {
      setError(error);
    }
  }
  const remove = () => {
    const params = { path: { room: roomId, event_id: eventId } };
    const request = () => matchday.delete("/api/auth/chat-rooms/{room}/messages/{event_id}", { params, body: {} });
    return act(request, "Removing…");
  };
  const mute = () => {
    const params = { path: { room: roomId, user: from } };
    const body = { seconds: muteSeconds };
    const request = () => matchday.put("/api/auth/chat-rooms/{room}/mutes/{user}", { params, body });
    return act(request, `${from} is muted for 10 minutes.`);
  };
  if (note) {
    return (
      <p className="small soft" role="status">
        {note}
      </p>
    );
  }
  if (!isOpen) {
    return (
      <button
        type="button"
        className="report-open"
        aria-label={isOwn ? "Delete your message" : `Moderate message from ${from}`}
        onClick={() => setOpen(true)}
      >
        ⋯
      </button>
    );
  }
  return (
    <div className="report">
      <p className="small">
        {isOwn ? "Delete this message for everyone?" : "Remove this message for everyone, or mute its sender?"}
      </p>
      {error !== undefined && (
        <p className="fault" role="alert">
          {errorMessage(error)}
        </p>
      )}
      <div>
        <button type="button" className="button low" onClick={remove}>
          {isOwn ? "Delete" : "Remove"}
        </button>
        {!isOwn && (
          <button type="button" className="button quiet low" onClick={mute}>
            Mute 10 min
          </button>
        )}
        <button type="button" className="button quiet low" onClick={() => setOpen(false)}>
          Cancel
        </button>
      </div>
    </div>
  );
}
