import type { Schemas } from "@matchday/client";
import { updated, useLive } from "../live/live.tsx";
import { matchday } from "../session/session.ts";
import { useAnswer } from "../ui/answer.ts";
import { Page } from "../ui/page.tsx";
import { Shown } from "../ui/states.tsx";
import { byDay, type Day } from "./days.ts";
import { LiveMatch, MatchRow } from "./match-row.tsx";
import "./matches.css";

type Own = Map<number, Schemas["OwnPrediction"]>;

/** All matches by day, the live ones first, kept up to date by the stream. */
export function MatchesPage() {
  const matches = useAnswer(async (signal) => {
    const { data } = await matchday.get("/api/auth/events", { params: { query: { per_page: 100 } }, signal });
    return data;
  }, []);
  const own = useAnswer(async (signal): Promise<Own> => {
    const { data } = await matchday.get("/api/auth/predictions", { params: { query: { per_page: 100 } }, signal });
    return new Map(data.map((prediction) => [prediction.event_id, prediction]));
  }, []);

  useLive((event) => {
    switch (event.kind) {
      case "event": {
        const told = event.data;
        if (told.changed.includes("created")) return matches.reload();
        return matches.change((all) => all.map((match) => (match.id === told.event_id ? updated(match, told) : match)));
      }
      case "tally": {
        const { event_id, total_predictions } = event.data;
        return matches.change((all) =>
          all.map((match) => (match.id === event_id ? { ...match, predictions_count: total_predictions } : match)),
        );
      }
      case "points":
        return own.reload();
      case "reset":
        matches.reload();
        own.reload();
    }
  });

  return (
    <Page title="Matches">
      <Shown answer={matches}>
        {(all) => {
          const { live, toCome, over } = byDay(all);
          if (all.length === 0) return <p className="card empty">No matches yet. They appear here by themselves.</p>;
          return (
            <>
              {live.length > 0 && (
                <section aria-labelledby="live" className="live-now">
                  <h2 id="live" className="unseen">
                    Live now
                  </h2>
                  {live.map((match) => (
                    <LiveMatch key={match.id} match={match} own={own.data?.get(match.id)} />
                  ))}
                </section>
              )}
              <div className="halves">
                <Days name="To come" days={toCome} own={own.data} />
                <Days name="Results" days={over} own={own.data} />
              </div>
            </>
          );
        }}
      </Shown>
    </Page>
  );
}

function Days({ name, days, own }: { name: string; days: Day[]; own: Own | undefined }) {
  return (
    <section className="days" aria-label={name}>
      <h2>{name}</h2>
      {days.length === 0 && <p className="card empty">Nothing here.</p>}
      {days.map((day) => (
        <div key={day.key} className="day">
          <h3>{day.name}</h3>
          <ul className="card rows">
            {day.matches.map((match) => (
              <MatchRow key={match.id} match={match} own={own?.get(match.id)} />
            ))}
          </ul>
        </div>
      ))}
    </section>
  );
}
