import type { Schemas } from "@matchday/client";
import { useState } from "react";
import { signed } from "../matches/labels.ts";
import { PickExtras, PickText } from "../matches/pick.tsx";
import { UserCell } from "../people/user-link.tsx";
import { matchday } from "../session/session.ts";
import { useCursorList } from "../ui/cursor-list.ts";
import { More } from "../ui/more.tsx";
import { Loaded } from "../ui/states.tsx";

/** Predictions of single fans for a match that is closed for predictions. Loaded when the fan asks for them. */
export function AllPredictions({ match }: { match: Schemas["Event"] }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <div className="who-list">
      <button
        type="button"
        className="button quiet low"
        aria-expanded={isOpen}
        onClick={() => setOpen((isOpen) => !isOpen)}
      >
        {isOpen ? "Hide predictions" : "Show who predicted what"}
      </button>
      {isOpen && <List match={match} />}
    </div>
  );
}

function List({ match }: { match: Schemas["Event"] }) {
  const list = useCursorList(
    async (cursor, signal) => {
      const params = { path: { event: match.id }, query: { per_page: 20, ...(cursor !== null && { cursor }) } };
      const { data, meta } = await matchday.get("/api/auth/events/{event}/predictions", { params, signal });
      return { data, meta: { next_cursor: meta.next_cursor, total: meta.total_predictions } };
    },
    ({ id }) => id,
    // A result changes the points.
    [match.id, match.status],
    "predictions",
  );
  return (
    <Loaded resource={list.resource}>
      {({ items }) => (
        <>
          <ul className="people plain" aria-label="Predictions">
            {items.map((item) => (
              <li key={item.id}>
                <UserCell user={item.user}>
                  <span className="small soft numbers">
                    <PickText prediction={item} match={match} />
                    <PickExtras prediction={item} match={match} />
                  </span>
                </UserCell>
                <Points points={item.points_earned} />
              </li>
            ))}
          </ul>
          <More list={list} />
        </>
      )}
    </Loaded>
  );
}

/** Points of a prediction or an answer; nothing until they are known. */
export function Points({ points }: { points: number | null }) {
  if (points === null) return null;
  return (
    <span className={`tag numbers ${points > 0 ? "good" : points < 0 ? "bad" : ""}`}>
      {signed(points)} {Math.abs(points) === 1 ? "point" : "points"}
    </span>
  );
}
