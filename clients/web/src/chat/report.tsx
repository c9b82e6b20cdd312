import { type FormEvent, useState } from "react";
import { matchday } from "../session/session.ts";
import { errorMessage } from "../ui/states.tsx";

/** Reports a message to the moderators. The report keeps a copy, even if the sender deletes the message. */
export function Report({ roomId, eventId, from }: { roomId: string; eventId: string; from: string }) {
  const [isOpen, setOpen] = useState(false);
  const [reason, setReason] = useState("");
  const [error, setError] = useState<unknown>();
  const [isDone, setDone] = useState(false);

  async function submit(event: FormEvent) {
    event.preventDefault();
    setError(undefined);
    try {
      const body = { event_id: eventId, reason: reason.trim() };
      await matchday.post("/api/auth/chat-rooms/{room}/reports", { params: { path: { room: roomId } }, body });
      setOpen(false);
      setDone(true);
    } catch (error) {
      setError(error);
    }
  }
  if (isDone) {
    return (
      <p className="small soft" role="status">
        Reported. A moderator will review it.
      </p>
    );
  }
  if (!isOpen) {
    return (
      <button
        type="button"
        className="report-open"
        aria-label={`Report message from ${from}`}
        onClick={() => setOpen(true)}
      >
        ⋯
      </button>
    );
  }
  const id = `reason-${eventId}`;
  return (
    <form className="report" onSubmit={submit}>
      <div className="field">
        <label htmlFor={id} className="small">
          What's wrong with this message?
        </label>
        <input id={id} required maxLength={500} value={reason} onChange={(event) => setReason(event.target.value)} />
      </div>
      {error !== undefined && (
        <p className="fault" role="alert">
          {errorMessage(error)}
        </p>
      )}
      <div>
        <button type="submit" className="button low" disabled={!reason.trim()}>
          Report
        </button>
        <button type="button" className="button quiet low" onClick={() => setOpen(false)}>
          Cancel
        </button>
      </div>
    </form>
  );
}
