import type { Schemas } from "@matchday/client";
import { useState } from "react";
import { useLocation } from "wouter";
import { useLive } from "../live/live.tsx";
import { formatNumber, ordinal } from "../matches/labels.ts";
import { UserCell } from "../people/user-link.tsx";
import { matchday, useMe } from "../session/session.ts";
import { Page } from "../ui/page.tsx";
import { useResource } from "../ui/resource.ts";
import { useSessionState } from "../ui/session-state.ts";
import { Loaded } from "../ui/states.tsx";
import { RoundSelect } from "./round-select.tsx";
import { RoundState } from "./round-state.tsx";
import { ScopeSelect } from "./scope-select.tsx";
import "./table.css";

type Period = Schemas["LeaderboardPeriod"];
const periods: { value: Period; name: string }[] = [
  { value: "all", name: "All time" },
  { value: "month", name: "This month" },
  { value: "week", name: "This week" },
];
type Among = Schemas["LeaderboardMeta"]["among"];
const groups: { value: Among; name: string }[] = [
  { value: "all", name: "Everyone" },
  { value: "following", name: "People you follow" },
];

/** Scope of a leaderboard: empty for all fans, or a tournament, a round of it, or a room. */
export type Scope = { tournament_id?: number; round?: number; room_id?: string };

export function TablePage({ scope }: { scope: Scope }) {
  const [period, setPeriod] = useState<Period>("all");
  const [chosen, setAmong] = useSessionState<Among>("table.among", "all");
  const [, navigate] = useLocation();
  // A room has its own users.
  const among = scope.room_id === undefined ? chosen : "all";
  const query = {
    ...scope,
    // A round has its own dates.
    ...(scope.round === undefined && { period }),
    ...(among !== "all" && { among }),
    per_page: 50,
  };
  const resource = useResource(
    (signal) => matchday.get("/api/auth/leaderboards", { params: { query }, signal }),
    [query],
  );
  // The stream reports the fan's rank after a result is part of all scores, so the leaderboard has changed.
  useLive(({ kind, data }) => {
    const isOwnRound = kind === "round" && data.tournament_id === scope.tournament_id && data.round === scope.round;
    if (kind === "rank" || kind === "reset" || isOwnRound) resource.reload();
  });
  return (
    <Page title="Leaderboard" className="table-page">
      <div className="table-choices">
        <ScopeSelect scope={scope} choose={(path) => navigate(path)} />
        {scope.tournament_id !== undefined && (
          <RoundSelect
            tournaments={[scope.tournament_id]}
            round={scope.round}
            all={`/table/tournament/${scope.tournament_id}`}
            choose={(path) => navigate(path)}
          />
        )}
        {scope.room_id === undefined && (
          <fieldset className="choice">
            <legend className="unseen">Show</legend>
            {groups.map(({ value, name }) => (
              <label key={value}>
                <input type="radio" name="among" checked={among === value} onChange={() => setAmong(value)} />
                {name}
              </label>
            ))}
          </fieldset>
        )}
        {scope.round === undefined && (
          <fieldset className="choice">
            <legend className="unseen">Period</legend>
            {periods.map(({ value, name }) => (
              <label key={value}>
                <input type="radio" name="period" checked={period === value} onChange={() => setPeriod(value)} />
                {name}
              </label>
            ))}
          </fieldset>
        )}
      </div>
      <Loaded resource={resource}>
        {({ data, meta }) => (
          <>
            {meta.round !== null && <RoundState meta={meta} points={data.top[0]?.points} />}
            <Board data={data} players={meta.total_players} />
            {among === "following" && <FollowHint players={meta.total_players} />}
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** Shown while there is no one to compare with. */
function FollowHint({ players }: { players: number }) {
  if (players > 1) return null;
  return (
    <p className="card empty">
      People you follow appear here as soon as they have points. To follow someone, open their profile from the
      leaderboard or from a league.
    </p>
  );
}

function Board({ data, players }: { data: Schemas["LeaderboardData"]; players: number }) {
  const { me } = useMe();
  const own = data.me;
  if (data.top.length === 0) {
    return <p className="card empty">No points yet. They appear after the first result.</p>;
  }
  const isAmongTop = own != null && data.top.some(({ user }) => user.id === me.id);
  return (
    <>
      <p className="place" role="status">
        {own ? (
          <>
            You're <strong className="numbers">{ordinal(own.rank)}</strong> of {players.toLocaleString("en")} with{" "}
            <strong className="numbers">{formatNumber(own.points)}</strong> {own.points === 1 ? "point" : "points"}.
          </>
        ) : (
          "You have no points here yet."
        )}
      </p>
      <div className="card table-card">
        <table className="numbers">
          <caption className="unseen">Leaderboard</caption>
          <thead>
            <tr>
              <th scope="col">
                <span className="unseen">Rank</span>
              </th>
              <th scope="col">Fan</th>
              <th scope="col" className="wide-only">
                Exact
              </th>
              <th scope="col">Correct</th>
              <th scope="col">Points</th>
            </tr>
          </thead>
          <Rows entries={data.top} me={me.id} />
          {!isAmongTop && data.neighbours.length > 0 && <Rows entries={data.neighbours} me={me.id} apart />}
        </table>
      </div>
    </>
  );
}

function Rows({ entries, me, apart }: { entries: Schemas["LeaderboardEntry"][]; me: number; apart?: boolean }) {
  return (
    <tbody className={apart ? "apart" : undefined}>
      {entries.map(({ rank, user, points, exact, correct, settled }) => (
        <tr
          key={user.id}
          aria-current={user.id === me ? "true" : undefined}
          className={rank <= 3 ? "podium" : undefined}
        >
          <td>
            <span className="rank">{rank}</span>
          </td>
          <th scope="row">
            <UserCell user={user}>
              {(user.id === me || user.name !== null) && (
                <span className="small soft">{user.id === me ? "You" : user.username}</span>
              )}
            </UserCell>
          </th>
          <td className="wide-only">{exact}</td>
          <td>
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
