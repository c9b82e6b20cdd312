import { matchday } from "../session/session.ts";
import { useResource } from "../ui/resource.ts";
import type { Scope } from "./table-page.tsx";

/** Selects the leaderboard: all tournaments, one of them or one of the fan's rooms. */
export function ScopeSelect({ scope, choose }: { scope: Scope; choose: (path: string) => void }) {
  const { data } = useResource(async (signal) => {
    const [tournaments, rooms] = await Promise.all([
      matchday.get("/api/auth/tournaments", { params: { query: { per_page: 100 } }, signal }),
      matchday.get("/api/auth/chat-rooms", { params: { query: { joined: true, per_page: 100 } }, signal }),
    ]);
    return { tournaments: tournaments.data, rooms: rooms.data };
  }, []);
  const value = scope.room_id
    ? `/table/room/${encodeURIComponent(scope.room_id)}`
    : scope.tournament_id
      ? `/table/tournament/${scope.tournament_id}`
      : "/table";
  return (
    <label className="scope">
      <span className="unseen">Leaderboard</span>
      {/* Until the options are loaded, only the current one is shown. */}
      <select className="select" value={value} onChange={(event) => choose(event.target.value)} disabled={!data}>
        <option value="/table">All tournaments</option>
        {!data && value !== "/table" && <option value={value}>…</option>}
        {data && data.tournaments.length > 0 && (
          <optgroup label="Tournaments">
            {data.tournaments.map(({ id, name }) => (
              <option key={id} dir="auto" value={`/table/tournament/${id}`}>
                {name}
              </option>
            ))}
          </optgroup>
        )}
        {data && data.rooms.length > 0 && (
          <optgroup label="Your rooms">
            {data.rooms.map(({ room_id, name }) => (
              <option key={room_id} dir="auto" value={`/table/room/${encodeURIComponent(room_id)}`}>
                {name}
              </option>
            ))}
          </optgroup>
        )}
      </select>
    </label>
  );
}
