import { matchday } from "../session/session.ts";
import { useResource } from "../ui/resource.ts";
import { dateAndTime } from "../ui/time.ts";

/** Reasons for which the service itself removes messages. */
const automatic: Record<string, string> = {
  filter: "Removed automatically, because it breaks the rules of the chat.",
  classifier: "Removed automatically, because it breaks the rules of the chat.",
  slow_mode: "Removed, because the chat was in slow mode.",
};

/** Messages of the fan that were removed from a chat. Shown only if there are any. */
export function ChatNotices() {
  const query = { per_page: 5 };
  const removed = useResource(
    (signal) => matchday.get("/api/auth/removed-messages", { params: { query }, signal }),
    [],
    "removed",
  );
  const { data = [] } = removed.data ?? {};
  if (data.length === 0) return null;
  return (
    <section className="card" aria-labelledby="removed">
      <header>
        <h2 id="removed">Removed messages</h2>
      </header>
      <ul className="sessions">
        {data.map(({ event_id, source, reason, removed_at }) => (
          <li key={event_id}>
            <span>
              {automatic[source] ?? (reason || "Removed by a moderator.")}
              <span className="small soft">{dateAndTime(removed_at)}</span>
            </span>
          </li>
        ))}
      </ul>
      <p className="small soft">Repeated violations can lead to a mute or a ban.</p>
    </section>
  );
}
