import { useEffect, useState } from "react";
import { Link } from "wouter";
import { counted } from "../matches/labels.ts";
import { matchday } from "../session/session.ts";
import { Name } from "../ui/name.tsx";
import { useResource } from "../ui/resource.ts";
import { useSessionState } from "../ui/session-state.ts";
import { Loaded } from "../ui/states.tsx";
import type { League } from "./join.ts";

const perPage = 20;
/** Milliseconds after the last key press until the search is sent. */
const pause = 300;

/** Public leagues, newest first, with a search by name. */
export function PublicLeagues() {
  const [text, setText] = useSessionState("leagues.search", "");
  const [search, setSearch] = useState(text.trim());
  const [pages, setPages] = useState(1);
  useEffect(() => {
    const timer = setTimeout(() => {
      setSearch(text.trim());
      setPages(1);
    }, pause);
    return () => clearTimeout(timer);
  }, [text]);
  const resource = useResource(
    async (signal) => {
      const load = (page: number) => {
        const query = { public: true, ...(search && { search }), page, per_page: perPage };
        return matchday.get("/api/auth/leagues", { params: { query }, signal });
      };
      const loaded = await Promise.all(Array.from({ length: pages }, (_, index) => load(index + 1)));
      // A league that is created between two requests moves the others to the next page.
      const leagues = new Map(loaded.flatMap(({ data }) => data.map((league) => [league.id, league])));
      return { leagues: [...leagues.values()], total: loaded[0]?.meta.total ?? 0 };
    },
    [search, pages],
    "public leagues",
  );
  // The list stays visible while the next page loads.
  const [shown, setShown] = useState(resource.data);
  if (resource.data !== undefined && resource.data !== shown) setShown(resource.data);
  const current = resource.error === undefined && shown !== undefined ? { ...resource, data: shown } : resource;
  return (
    <section className="stack" aria-labelledby="public-leagues">
      <header className="leagues-header">
        <h2 id="public-leagues">Public leagues</h2>
      </header>
      <search className="field">
        <label className="unseen" htmlFor="league-search">
          Search public leagues
        </label>
        <input
          id="league-search"
          type="search"
          autoComplete="off"
          enterKeyHint="search"
          placeholder="Search by name"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      </search>
      <Loaded resource={current}>
        {({ leagues, total }) => (
          <>
            <p className="unseen" role="status">
              {counted(total, "public league")}
            </p>
            {leagues.length === 0 ? (
              <p className="card empty">
                {search ? "No public league has this name." : "No public leagues yet. Create the first one!"}
              </p>
            ) : (
              <ul className="card public-list">
                {leagues.map((league) => (
                  <PublicLeague key={league.id} league={league} />
                ))}
              </ul>
            )}
            {leagues.length < total && (
              <button type="button" className="button quiet" onClick={() => setPages((pages) => pages + 1)}>
                Show more
              </button>
            )}
          </>
        )}
      </Loaded>
    </section>
  );
}

function PublicLeague({ league }: { league: League }) {
  const { id, name, owner, member_count, max_members, me } = league;
  const isFull = member_count >= max_members;
  return (
    <li>
      <Link href={`/leagues/${id}`}>
        <span className="league-name">
          <Name>{name}</Name>
          <span className="small soft">
            {counted(member_count, "member")} · by <Name>{owner.name ?? owner.username}</Name>
          </span>
        </span>
        {me ? <span className="tag good">Joined</span> : isFull ? <span className="tag">Full</span> : null}
        <span className="chevron" aria-hidden="true">
          ›
        </span>
      </Link>
    </li>
  );
}
