import { useRef, useState } from "react";
import { flushSync } from "react-dom";
import { useLocation } from "wouter";
import { UserCell } from "../people/user-link.tsx";
import { matchday, useMe } from "../session/session.ts";
import { Name } from "../ui/name.tsx";
import { Question } from "../ui/question.tsx";
import { notifyTabs } from "../ui/refresh.ts";
import { errorMessage, Loaded } from "../ui/states.tsx";
import { toast } from "../ui/toasts.tsx";
import type { League } from "./join.ts";
import { type Row, useLeagueTable } from "./league-table.ts";

/** Members of a league, whom the owner can remove or make the owner. */
export function Members({ league, removed }: { league: League; removed: () => void }) {
  const { me } = useMe();
  const table = useLeagueTable(league.id);
  return (
    <section className="card" aria-labelledby="members">
      <header>
        <h2 id="members">Members</h2>
      </header>
      <Loaded resource={table.resource}>
        {({ rows, cursor }) => (
          <div className="stack">
            <ul className="members">
              {rows.map((row) => (
                <li key={row.user.id}>
                  {row.user.id === me.id ? (
                    <span className="member">
                      <MemberName user={row.user} />
                      <span className="tag">Owner</span>
                    </span>
                  ) : (
                    <Member
                      league={league}
                      user={row.user}
                      removed={() => {
                        table.resource.reload();
                        removed();
                      }}
                    />
                  )}
                </li>
              ))}
            </ul>
            {rows.length === 1 && <p className="soft small">Share the link, and your friends appear here.</p>}
            {cursor !== null && (
              <button type="button" className="button quiet low" onClick={table.more} disabled={table.isLoadingMore}>
                {table.isLoadingMore ? "Loading…" : "Show more members"}
              </button>
            )}
            {table.moreError !== undefined && (
              <p className="notice" role="alert">
                {errorMessage(table.moreError)}
              </p>
            )}
          </div>
        )}
      </Loaded>
    </section>
  );
}

function MemberName({ user }: { user: Row["user"] }) {
  return <UserCell user={user}>{user.name !== null && <span className="small soft">{user.username}</span>}</UserCell>;
}

function Member({ league, user, removed }: { league: League; user: Row["user"]; removed: () => void }) {
  const [asked, setAsked] = useState<"remove" | "owner">();
  const openers = { remove: useRef<HTMLButtonElement>(null), owner: useRef<HTMLButtonElement>(null) };
  const [, navigate] = useLocation();
  const name = user.name ?? user.username;
  function cancel() {
    const opener = asked && openers[asked];
    flushSync(() => setAsked(undefined));
    opener?.current?.focus();
  }
  async function remove() {
    const params = { path: { league: league.id, user: user.id } };
    await matchday.delete("/api/auth/leagues/{league}/members/{user}", { params });
    toast(
      `league ${league.id}`,
      <>
        <Name>{name}</Name> is no longer a member.
      </>,
    );
    removed();
    notifyTabs();
  }
  async function handOver() {
    const params = { path: { league: league.id } };
    await matchday.post("/api/auth/leagues/{league}/owner", { params, body: { user_id: user.id } });
    toast(
      `league ${league.id}`,
      <>
        <Name>{name}</Name> is now the owner.
      </>,
    );
    notifyTabs();
    navigate(`/leagues/${league.id}`, { replace: true });
  }
  return (
    <>
      <span className="member">
        <MemberName user={user} />
        {asked === undefined && (
          <span className="member-actions">
            <button
              ref={openers.owner}
              type="button"
              className="button quiet low"
              aria-label={`Make owner: ${name}`}
              onClick={() => setAsked("owner")}
            >
              Make owner
            </button>
            <button
              ref={openers.remove}
              type="button"
              className="button quiet low"
              aria-label={`Remove: ${name}`}
              onClick={() => setAsked("remove")}
            >
              Remove
            </button>
          </span>
        )}
      </span>
      {asked === "remove" && (
        <Question action="Remove" act={remove} cancel={cancel}>
          Remove <Name>{name}</Name>? They can't join this league again.
        </Question>
      )}
      {asked === "owner" && (
        <Question action="Make owner" act={handOver} cancel={cancel}>
          Make <Name>{name}</Name> the owner? You stay a member, and only they can change the league from then on.
        </Question>
      )}
    </>
  );
}
