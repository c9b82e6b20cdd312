import type { Schemas } from "@matchday/client";
import { useState } from "react";
import { useLocation } from "wouter";
import { useLive } from "../live/live.tsx";
import { signedPlain } from "../matches/words.ts";
import { matchday, useMe } from "../session/session.ts";
import { useAnswer } from "../ui/answer.ts";
import { Name } from "../ui/name.tsx";
import { Page } from "../ui/page.tsx";
import { Shown } from "../ui/states.tsx";
import { ScopeSelect } from "./scope-select.tsx";
import "./table.css";

type Period = Schemas["LeaderboardPeriod"];
const periods: { value: Period; name: string }[] = [
  { value: "all", name: "All time" },
  { value: "month", name: "This month" },
  { value: "week", name: "This week" },
];

/** Everyone, the fans of a tournament, or the members of a room. */
export type Scope = { tournament_id?: number; room_id?: string };

/** The leaderboard. */
export function TablePage({ scope }: { scope: Scope }) {
  const [period, setPeriod] = useState<Period>("all");
  const [, navigate] = useLocation();
  const query = { ...scope, period, per_page: 50 };
  const answer = useAnswer((signal) => matchday.get("/api/auth/leaderboards", { params: { query }, signal }), [query]);
  // The stream reports the fan's rank when a result is counted everywhere: the leaderboard changed.
  useLive(({ kind }) => {
    if (kind === "rank" || kind === "reset") answer.reload();
  });
  return (
    <Page title="Leaderboard" className="table-page">
      <div className="table-choices">
        <ScopeSelect scope={scope} choose={(path) => navigate(path)} />
        <fieldset className="choice">
          <legend className="unseen">Period</legend>
          {periods.map(({ value, name }) => (
            <label key={value}>
              <input type="radio" name="period" checked={period === value} onChange={() => setPeriod(value)} />
              {name}
            </label>
          ))}
        </fieldset>
      </div>
      <Shown answer={answer}>{({ data, meta }) => <Board data={data} players={meta.total_players} />}</Shown>
    </Page>
  );
}

function Board({ data, players }: { data: Schemas["LeaderboardData"]; players: number }) {
  const { me } = useMe();
  const place = data.me;
  if (data.top.length === 0) {
    return <p className="card empty">No points yet. They appear after the first result.</p>;
  }
  const isAmongTop = place != null && data.top.some(({ user }) => user.id === me.id);
  return (
    <>
      <p className="place" role="status">
        {place ? (
          <>
            You're <strong className="numbers">{ordinal(place.rank)}</strong> of {players} with{" "}
            <strong className="numbers">{signedPlain(place.points)}</strong> {place.points === 1 ? "point" : "points"}.
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
            <Name>{user.name ?? user.username}</Name>
            <span className="small soft">{user.id === me ? "You" : user.username}</span>
          </th>
          <td className="wide-only">{exact}</td>
          <td>
            {correct}
            <span className="soft">/{settled}</span>
          </td>
          <td>
            <strong>{signedPlain(points)}</strong>
          </td>
        </tr>
      ))}
    </tbody>
  );
}

const rules = new Intl.PluralRules("en", { type: "ordinal" });
const endings: Record<string, string> = { one: "st", two: "nd", few: "rd", other: "th" };
const ordinal = (number: number) => `${number}${endings[rules.select(number)]}`;
