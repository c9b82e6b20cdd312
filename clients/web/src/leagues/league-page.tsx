import { MatchdayError } from "@matchday/client";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { counted, formatNumber, ordinal } from "../matches/labels.ts";
import { useTournaments } from "../matches/tournaments.ts";
import { UserLink } from "../people/user-link.tsx";
import { matchday } from "../session/session.ts";
import { RoundSelect } from "../table/round-select.tsx";
import { RoundState } from "../table/round-state.tsx";
import "../table/table.css";
import { Back } from "../ui/back.tsx";
import { Name } from "../ui/name.tsx";
import { Page } from "../ui/page.tsx";
import { type Resource, useResource } from "../ui/resource.ts";
import { Loaded, Problem } from "../ui/states.tsx";
import { dateAndTime } from "../ui/time.ts";
import { Invite } from "./invite.tsx";
import { joinLeague, joinMessage, type League } from "./join.ts";
import { useLeagueTable } from "./league-table.ts";
import "./leagues.css";
import { Leave } from "./leave.tsx";
import { useScoreChanges } from "./score-changes.ts";
import { Standings } from "./standings.tsx";
import { welcome } from "./welcome.tsx";

export function useLeague(id: number): Resource<League> {
  return useResource(
    async (signal) =>
      (await matchday.get("/api/auth/leagues/{league}", { params: { path: { league: id } }, signal })).data,
    [id],
    "league",
  );
}

/** Page of a league: its table, of all rounds or of one, and the invitation. */
export function LeaguePage({ id, round }: { id: number; round?: number }) {
  const resource = useLeague(id);
  const { data: league, error } = resource;
  // A member who was removed no longer sees the league.
  const isGone = error instanceof MatchdayError && error.status === 404;
  return (
    <Page
      title={league?.name ?? "League"}
      heading={league && !isGone && <Heading league={league} />}
      className="league"
      before={<Back to="/leagues">Leagues</Back>}
    >
      {isGone ? (
        <Problem error={error} />
      ) : (
        <Loaded resource={resource}>
          {(league) => <Content league={league} round={round} reload={resource.reload} />}
        </Loaded>
      )}
    </Page>
  );
}

function Heading({ league }: { league: League }) {
  return (
    <span className="league-heading">
      <Name>{league.name}</Name>
      <span className="small soft">
        {counted(league.member_count, "member")} · {league.visibility === "public" ? "Public" : "Private"}
      </span>
    </span>
  );
}

function Content({ league, round, reload }: { league: League; round: number | undefined; reload: () => void }) {
  const { id, tournament_ids, from_round, from, code, me } = league;
  const [, navigate] = useLocation();
  const table = useLeagueTable(id, round);
  // A new league needs members first.
  const [isInviting, setInviting] = useState(league.member_count === 1);
  const isInLeague = (tournament: number) => tournament_ids.includes(tournament);
  const changed = () => {
    table.resource.reload();
    reload();
  };
  useScoreChanges(changed, ({ kind, data }) => {
    if (kind === "league.rank") return data.league_id === id;
    return kind === "result" || kind === "round" ? isInLeague(data.tournament_id) : true;
  });
  return (
    <>
      <div className="league-actions">
        {code !== null && (
          <button
            type="button"
            className={`button${isInviting ? " quiet" : ""}`}
            aria-expanded={isInviting}
            onClick={() => setInviting(!isInviting)}
          >
            Invite friends
          </button>
        )}
        {me === null && <Join league={league} joined={changed} />}
        {me?.role === "owner" && (
          <Link href={`/leagues/${id}/settings`} className="button quiet">
            Settings
          </Link>
        )}
      </div>
      {code !== null && isInviting && <Invite code={code} name={league.name} />}
      <div className="league-halves">
        <div className="stack">
          <div className="table-choices">
            <RoundSelect
              tournaments={tournament_ids}
              filter={{ from_round, from }}
              round={round}
              all={`/leagues/${id}`}
              choose={(path) => navigate(path, { replace: true })}
            />
          </div>
          <Loaded resource={table.resource}>
            {({ rows, me, neighbours, meta, cursor }) => (
              <>
                {meta.round !== null && <RoundState meta={meta} points={rows[0]?.points} />}
                {me && (
                  <p className="place" role="status">
                    You're <strong className="numbers">{ordinal(me.rank)}</strong> of {formatNumber(meta.total_members)}{" "}
                    with <strong className="numbers">{formatNumber(me.points)}</strong>{" "}
                    {me.points === 1 ? "point" : "points"}.
                  </p>
                )}
                <Standings table={table} rows={rows} neighbours={neighbours} hasMore={cursor !== null} />
              </>
            )}
          </Loaded>
        </div>
        <div className="stack">
          <About league={league} />
          {me && <Leave league={league} />}
        </div>
      </div>
    </>
  );
}

/** Joins a public league. */
function Join({ league, joined }: { league: League; joined: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const isFull = league.member_count >= league.max_members;
  async function join() {
    setBusy(true);
    setError(undefined);
    try {
      welcome(await joinLeague({ league_id: league.id }));
      joined();
    } catch (error) {
      setError(error);
    }
    setBusy(false);
  }
  return (
    <>
      <button type="button" className="button lantern" onClick={join} disabled={isBusy || isFull}>
        {isFull ? "This league is full" : isBusy ? "Joining…" : "Join this league"}
      </button>
      {error !== undefined && (
        <p className="notice" role="alert">
          {joinMessage(error)}
        </p>
      )}
    </>
  );
}

/** Rules of a league. */
function About({ league }: { league: League }) {
  const { tournament_ids, from_round, from, counts_from, owner, member_count, max_members } = league;
  const tournaments = useTournaments().data?.filter(({ id }) => tournament_ids.includes(id)) ?? [];
  return (
    <section className="card about" aria-labelledby="about">
      <header>
        <h2 id="about">About this league</h2>
      </header>
      <dl>
        <dt>{tournament_ids.length === 1 ? "Tournament" : "Tournaments"}</dt>
        <dd>
          {tournaments.map(({ id, name }) => (
            <Name key={id} className="about-tournament">
              {name}
            </Name>
          ))}
        </dd>
        <dt>Matches</dt>
        <dd>
          {from_round !== null ? `From round ${from_round} on` : from !== null ? `From ${dateAndTime(from)} on` : "All"}
        </dd>
        <dt>Late joiners</dt>
        <dd>{counts_from === "joined" ? "Start at zero" : "Keep their points"}</dd>
        <dt>Members</dt>
        <dd className="numbers">
          {formatNumber(member_count)} of up to {formatNumber(max_members)}
        </dd>
        <dt>Owner</dt>
        <dd>
          <UserLink user={owner} />
        </dd>
      </dl>
    </section>
  );
}
