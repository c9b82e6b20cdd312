import { Link } from "wouter";
import { counted, formatNumber, ordinal } from "../matches/labels.ts";
import { Name } from "../ui/name.tsx";
import { Page } from "../ui/page.tsx";
import { useResource } from "../ui/resource.ts";
import { Loaded } from "../ui/states.tsx";
import { type League, ownLeagues } from "./join.ts";
import { JoinForm } from "./join-form.tsx";
import "./leagues.css";
import { PublicLeagues } from "./public-leagues.tsx";
import { useScoreChanges } from "./score-changes.ts";

/** The fan's leagues, and ways into others: create one, enter a code, or find a public one. */
export function LeaguesPage() {
  const resource = useResource(ownLeagues, [], "leagues");
  useScoreChanges(resource.reload);
  return (
    <Page title="Leagues" className="leagues">
      <Loaded resource={resource}>
        {(leagues) => (
          <div className="leagues-halves">
            {leagues.length === 0 ? <Invitation /> : <Own leagues={leagues} />}
            <PublicLeagues />
          </div>
        )}
      </Loaded>
    </Page>
  );
}

/** Shown to a fan without leagues. */
function Invitation() {
  return (
    <section className="card leagues-empty" aria-labelledby="no-leagues">
      <div className="leagues-hero on-pitch">
        <span className="cup" aria-hidden="true">
          ★
        </span>
        <h2 id="no-leagues">Play against your friends</h2>
        <p>A league has its own table. Your predictions count in all of your leagues.</p>
        <Link href="/leagues/new" className="button lantern">
          Create a league
        </Link>
      </div>
      <JoinForm />
    </section>
  );
}

function Own({ leagues }: { leagues: League[] }) {
  return (
    <section className="stack" aria-labelledby="own-leagues">
      <header className="leagues-header">
        <h2 id="own-leagues">Your leagues</h2>
        <Link href="/leagues/new" className="button low">
          Create a league
        </Link>
      </header>
      <ul className="league-list">
        {leagues.map((league) => (
          <li key={league.id}>
            <Link href={`/leagues/${league.id}`} className="card league-link">
              {league.me && <Place rank={league.me.rank} />}
              <span className="league-name">
                <Name>{league.name}</Name>
                <span className="small soft">
                  {counted(league.member_count, "member")}
                  {league.me?.role === "owner" && " · You're the owner"}
                </span>
              </span>
              {league.me && (
                <span className="league-points numbers">
                  <strong>{formatNumber(league.me.points)}</strong>
                  <span className="small soft">{league.me.points === 1 ? "point" : "points"}</span>
                </span>
              )}
            </Link>
          </li>
        ))}
      </ul>
      <div className="card">
        <JoinForm />
      </div>
    </section>
  );
}

function Place({ rank }: { rank: number }) {
  return (
    <span className={`league-rank numbers${rank === 1 ? " first" : ""}`}>
      <span className="unseen">Your rank: </span>
      {ordinal(rank)}
    </span>
  );
}
