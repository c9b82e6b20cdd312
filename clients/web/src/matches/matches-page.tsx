import { type ReactNode, useEffect, useMemo, useRef } from "react";
import { updated, useLive } from "../live/live.tsx";
import { QuestionsLink } from "../questions/questions-link.tsx";
import { Name } from "../ui/name.tsx";
import { Page } from "../ui/page.tsx";
import { useSessionState } from "../ui/session-state.ts";
import { errorMessage, Loaded, Problem } from "../ui/states.tsx";
import { byDay, byState, type Day } from "./days.ts";
import { DateStrip, Filters } from "./filters.tsx";
import {
  type Filter,
  type Match,
  type MatchList,
  type Own,
  useDay,
  useMatchList,
  useOwnPredictions,
} from "./match-list.ts";
import { LiveMatch, MatchRow } from "./match-row.tsx";
import "./matches.css";
import { Multiplier } from "./multiplier.tsx";

/** Number of live matches with a large card; further ones are rows. */
const large = 2;

/** List of matches, kept up to date by the live stream. */
export function MatchesPage() {
  const [filter, setFilter] = useSessionState<Filter>("matches.filter", {});
  const [day, setDay] = useSessionState<string | null>("matches.day", null);
  const [tab, setTab] = useSessionState<"upcoming" | "results">("matches.tab", "upcoming");
  const live = useMatchList("live", filter);
  const scheduled = useMatchList("scheduled", filter);
  const finished = useMatchList("finished", filter);
  const onDay = useDay(day ?? undefined, filter);
  const own = useOwnPredictions();
  const lists = [live, scheduled, finished];

  const changeMatch = (id: number, how: (match: Match) => Match) => {
    const change = (all: Match[]) => all.map((match) => (match.id === id ? how(match) : match));
    for (const { resource } of lists) resource.change((pages) => ({ ...pages, matches: change(pages.matches) }));
    onDay.change(change);
  };
  const reload = () => {
    for (const { resource } of lists) resource.reload();
    onDay.reload();
  };
  const soon = useDebounced(reload);
  useLive((event) => {
    switch (event.kind) {
      case "event":
        changeMatch(event.data.event_id, (match) => updated(match, event.data));
        // The match may now belong to another page or list.
        if (event.data.changed.some((what) => what !== "score")) soon();
        return;
      case "tally": {
        const { event_id, total_predictions } = event.data;
        return changeMatch(event_id, (match) => ({ ...match, predictions_count: total_predictions }));
      }
      case "result": {
        const { event_id, advanced } = event.data;
        return changeMatch(event_id, (match) => ({ ...match, advanced }));
      }
      case "points":
        return own.reload();
      case "reset":
        reload();
        own.reload();
    }
  });

  const data = [live.resource.data, scheduled.resource.data, finished.resource.data];
  // biome-ignore lint/correctness/useExhaustiveDependencies: `data` is a new array each time, but its elements are stable
  const states = useMemo(() => byState(data.flatMap((pages) => pages?.matches ?? [])), data);
  const owned = { own: own.data };
  const isFiltered = Object.keys(filter).length > 0;
  return (
    <Page title="Matches" className="matches">
      <Filters filter={filter} choose={setFilter} />
      <DateStrip day={day ?? undefined} choose={(day) => setDay(day ?? null)} />
      {own.error !== undefined && own.data === undefined && (
        <div className="notice with-action" role="alert">
          <p>Your predictions couldn't be loaded. {errorMessage(own.error)}</p>
          <button type="button" className="button quiet low" onClick={own.reload}>
            Try again
          </button>
        </div>
      )}
      {day !== null ? (
        <Loaded resource={onDay}>
          {(matches) => (
            <section className="days one-day" aria-label="Matches of the day">
              <Days days={byDay(matches.toSorted(byStart))} {...owned} empty="No matches on this day." />
            </section>
          )}
        </Loaded>
      ) : (
        <>
          <LiveNow list={live} matches={states.live} {...owned} />
          <QuestionsLink />
          <fieldset className="choice list-choice">
            <legend className="unseen">List</legend>
            {(["upcoming", "results"] as const).map((value) => (
              <label key={value}>
                <input type="radio" name="list" checked={tab === value} onChange={() => setTab(value)} />
                {names[value]}
              </label>
            ))}
          </fieldset>
          <div className={`halves show-${tab}`}>
            <List name={names.upcoming} className="upcoming" list={scheduled}>
              <Days
                days={byDay(states.upcoming)}
                {...owned}
                empty={isFiltered ? "No upcoming matches for this filter." : "No upcoming matches yet."}
              />
              {states.withoutResult.length > 0 && (
                <>
                  <h3 className="without-result">Postponed or awaiting a result</h3>
                  <Days days={byDay(states.withoutResult)} {...owned} empty="" />
                </>
              )}
            </List>
            <List name={names.results} className="results" list={finished}>
              <Days
                days={byDay(states.results)}
                {...owned}
                empty={isFiltered ? "No results for this filter." : "No results yet."}
              />
            </List>
          </div>
        </>
      )}
    </Page>
  );
}

const names = { upcoming: "Upcoming", results: "Results" };
const byStart = (one: Match, other: Match) => Date.parse(one.start_time) - Date.parse(other.start_time);

interface Owned {
  own: Own | undefined;
}

function LiveNow({ list, matches, own }: { list: MatchList; matches: Match[] } & Owned) {
  if (list.resource.data === undefined && list.resource.error !== undefined) {
    return <Problem error={list.resource.error} retry={list.resource.reload} />;
  }
  if (matches.length === 0) return null;
  const [boards, rows] = [matches.slice(0, large), matches.slice(large)];
  return (
    <section aria-labelledby="live" className="live-now">
      <h2 id="live" className="unseen">
        Live now
      </h2>
      <div className="boards">
        {boards.map((match) => (
          <LiveMatch key={match.id} match={match} own={own?.get(match.id)} isOwnKnown={own !== undefined} />
        ))}
      </div>
      {rows.length > 0 && <Rows matches={rows} own={own} />}
      <More list={list} name="live matches" />
    </section>
  );
}

function List(props: { name: string; className: string; list: MatchList; children: ReactNode }) {
  const { name, className, list, children } = props;
  return (
    <section className={`days ${className}`} aria-label={name}>
      <h2>{name}</h2>
      <Loaded resource={list.resource}>
        {() => (
          <>
            {children}
            <More list={list} name={className === "upcoming" ? "upcoming matches" : "results"} />
          </>
        )}
      </Loaded>
    </section>
  );
}

function Days({ days, own, empty }: { days: Day[]; empty: string } & Owned) {
  if (days.length === 0) return <p className="card empty">{empty}</p>;
  return days.map((day) => (
    <div key={day.key} className="day">
      <h3>{day.name}</h3>
      {day.groups.map(({ tournament, stage, multiplier, matches }) => (
        <div key={`${tournament.id} ${stage} ${multiplier}`} className="card group">
          <h4>
            <Name>{tournament.name}</Name>
            {stage && ` · ${stage}`} <Multiplier multiplier={multiplier} />
          </h4>
          <Rows matches={matches} own={own} />
        </div>
      ))}
    </div>
  ));
}

function Rows({ matches, own }: { matches: Match[] } & Owned) {
  return (
    <ul className="rows">
      {matches.map((match) => (
        <MatchRow key={match.id} match={match} own={own?.get(match.id)} isOwnKnown={own !== undefined} />
      ))}
    </ul>
  );
}

/** Milliseconds after which a failed page is retried. */
const retryAfter = 5_000;

/** Loads the next page when the fan scrolls near the end. A failed page is retried with the button or after a pause. */
function More({ list, name }: { list: MatchList; name: string }) {
  const { hasMore, isLoadingMore, moreError, more, resource } = list;
  const end = useRef<HTMLDivElement>(null);
  const latest = useRef(more);
  useEffect(() => {
    latest.current = more;
  });
  const loaded = resource.data?.loaded;
  const hasFailed = moreError !== undefined;
  // biome-ignore lint/correctness/useExhaustiveDependencies: observes again after each page, as the end may still be in view
  useEffect(() => {
    if (!hasMore || hasFailed || isLoadingMore || !end.current) return;
    const observer = new IntersectionObserver(
      (entries) => {
        // One call reports several changes when the fan scrolls quickly. The last one is current.
        if (entries.at(-1)?.isIntersecting) latest.current();
      },
      { rootMargin: "800px" },
    );
    observer.observe(end.current);
    return () => observer.disconnect();
  }, [hasMore, hasFailed, isLoadingMore, loaded]);
  useEffect(() => {
    if (!hasMore || !hasFailed || isLoadingMore) return;
    const timer = setTimeout(() => latest.current(), retryAfter);
    return () => clearTimeout(timer);
  }, [hasMore, hasFailed, isLoadingMore]);
  if (!hasMore) return null;
  return (
    <div ref={end} className="more">
      {hasFailed && (
        <p className="notice" role="alert">
          {errorMessage(moreError)}
        </p>
      )}
      <button type="button" className="button quiet" onClick={more} disabled={isLoadingMore}>
        {isLoadingMore ? "Loading…" : `More ${name}`}
      </button>
    </div>
  );
}

/** Delays the call until a second after the last one, because many matches kick off at the same time. */
function useDebounced(call: () => void): () => void {
  const latest = useRef(call);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => {
    latest.current = call;
  });
  useEffect(() => () => clearTimeout(timer.current), []);
  return () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => latest.current(), 1000);
  };
}
