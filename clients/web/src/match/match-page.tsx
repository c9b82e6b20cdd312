import { Link } from "wouter";
import { Chat } from "../chat/chat.tsx";
import { updated, useLive } from "../live/live.tsx";
import { isOpen } from "../matches/words.ts";
import { OwnPrediction } from "../predict/own-prediction.tsx";
import { Predict } from "../predict/predict.tsx";
import { Tally } from "../predict/tally.tsx";
import { matchday, useMe } from "../session/session.ts";
import { useAnswer } from "../ui/answer.ts";
import { Page } from "../ui/page.tsx";
import { Shown } from "../ui/states.tsx";
import "./match.css";
import { Scoreboard } from "./scoreboard.tsx";

/** One match: how it stands, what one says of it, what others say, and its room. */
export function MatchPage({ id }: { id: number }) {
  const { me } = useMe();
  const answer = useAnswer(
    async (signal) => {
      const path = { event: id };
      const [{ data: match }, own] = await Promise.all([
        matchday.get("/api/auth/events/{event}", { params: { path }, signal }),
        matchday.get("/api/auth/events/{event}/predictions", { params: { path, query: { user_id: me.id } }, signal }),
      ]);
      return { match, own: own.data[0], tally: own.meta };
    },
    [id],
  );

  useLive((event) => {
    if (event.kind === "reset") return answer.reload();
    if (event.data.event_id !== id) return;
    if (event.kind === "event") answer.change((all) => ({ ...all, match: updated(all.match, event.data) }));
    if (event.kind === "tally") answer.change((all) => ({ ...all, tally: { ...all.tally, ...event.data } }));
    if (event.kind === "points") answer.reload();
  });

  const match = answer.data?.match;
  const title = match ? `${match.home_team.name} – ${match.away_team.name}` : "Match";
  return (
    <Page title={title} heading={null} className="match">
      <Link href="/" className="back">
        <span aria-hidden="true">←</span> All matches
      </Link>
      <Shown answer={answer}>
        {({ match, own, tally }) => (
          <>
            <Scoreboard match={match} />
            <div className="match-halves">
              <div className="stack">
                {isOpen(match) ? (
                  <Predict match={match} own={own} saved={(own) => answer.change((all) => ({ ...all, own }))} />
                ) : (
                  <OwnPrediction match={match} own={own} />
                )}
                <Tally match={match} tally={tally} />
              </div>
              <Chat match={match} />
            </div>
          </>
        )}
      </Shown>
    </Page>
  );
}
