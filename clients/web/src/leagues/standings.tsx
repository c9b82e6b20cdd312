import { useState } from "react";
import { formatNumber } from "../matches/labels.ts";
import { UserCell } from "../people/user-link.tsx";
import { useMe } from "../session/session.ts";
import { errorMessage } from "../ui/states.tsx";
import type { LeagueTable, Row } from "./league-table.ts";
import { Movement } from "./movement.tsx";

interface StandingsProps {
  table: LeagueTable;
  rows: Row[];
  neighbours: Row[];
  hasMore: boolean;
}

/** Rows of a league's table, with the fan's own row marked. */
export function Standings({ table, rows, neighbours, hasMore }: StandingsProps) {
  const { me } = useMe();
  const isShown = rows.some(({ user }) => user.id === me.id);
  const hasMovement = rows.some(({ movement }) => movement !== null);
  const changed = useChanged(rows);
  const shared = { me: me.id, hasMovement, changed };
  return (
    <>
      <div className="card table-card league-table">
        <table className="numbers">
          <caption className="unseen">Table of the league</caption>
          <thead>
            <tr>
              <th scope="col">
                <span className="unseen">Rank</span>
              </th>
              {hasMovement && (
                <th scope="col">
                  <span className="unseen">Places gained or lost by the latest round</span>
                </th>
              )}
              <th scope="col" className="who">
                Fan
              </th>
              <th scope="col" className="wide-only">
                Exact
              </th>
              <th scope="col" className="wide-only">
                Correct
              </th>
              <th scope="col">Points</th>
            </tr>
          </thead>
          <Rows rows={rows} {...shared} />
          {!isShown && neighbours.length > 0 && <Rows rows={neighbours} {...shared} apart />}
        </table>
      </div>
      {hasMore && (
        <button type="button" className="button quiet more-rows" onClick={table.more} disabled={table.isLoadingMore}>
          {table.isLoadingMore ? "Loading…" : "Show more members"}
        </button>
      )}
      {table.moreError !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(table.moreError)}
        </p>
      )}
    </>
  );
}

interface RowsProps {
  rows: Row[];
  me: number;
  hasMovement: boolean;
  changed: ReadonlySet<number>;
  apart?: boolean;
}

function Rows({ rows, me, hasMovement, changed, apart }: RowsProps) {
  return (
    <tbody className={apart ? "apart" : undefined}>
      {rows.map(({ rank, user, points, exact, correct, settled, movement }) => (
        <tr
          key={user.id}
          aria-current={user.id === me ? "true" : undefined}
          className={`${rank <= 3 ? `podium rank-${rank}` : ""}${changed.has(user.id) ? " changed" : ""}`}
        >
          <td>
            <span className="rank">{rank}</span>
          </td>
          {hasMovement && (
            <td className="moved">
              <Movement places={movement} />
            </td>
          )}
          <th scope="row">
            <UserCell user={user}>
              {user.id === me && <span className="tag own">You</span>}
              {user.name !== null && <span className="small soft wide-line">{user.username}</span>}
              <span className="small soft narrow-only">
                {exact} exact · {correct}/{settled} correct
              </span>
            </UserCell>
          </th>
          <td className="wide-only">{exact}</td>
          <td className="wide-only">
            {correct}
            <span className="soft">/{settled}</span>
          </td>
          <td>
            <strong>{formatNumber(points)}</strong>
          </td>
        </tr>
      ))}
    </tbody>
  );
}

const none: ReadonlySet<number> = new Set();

/** Members whose points differ from those of the previous rows, to highlight them after a live update. */
function useChanged(rows: Row[]): ReadonlySet<number> {
  const [state, setState] = useState({ rows, changed: none });
  if (state.rows === rows) return state.changed;
  const before = new Map(state.rows.map(({ user, points }) => [user.id, points]));
  const changed = rows.filter(({ user, points }) => before.has(user.id) && before.get(user.id) !== points);
  const next = { rows, changed: new Set(changed.map(({ user }) => user.id)) };
  setState(next);
  return next.changed;
}
