import { useState, useSyncExternalStore } from "react";
import { Chat } from "../chat/chat.tsx";
import { updated, useLive } from "../live/live.tsx";
import { isOpen } from "../matches/labels.ts";
import { useHasDraft } from "../predict/drafts.ts";
import { OwnPrediction } from "../predict/own-prediction.tsx";
import { Predict } from "../predict/predict.tsx";
import { useRules } from "../predict/rules.ts";
import { Tally } from "../predict/tally.tsx";
import { MatchQuestions } from "../questions/match-questions.tsx";
import { useSeal } from "../seals/seal.ts";
import { matchday, useMe } from "../session/session.ts";
import { Back } from "../ui/back.tsx";
import { Page } from "../ui/page.tsx";
import { useResource } from "../ui/resource.ts";
import { useSessionState } from "../ui/session-state.ts";
import { Loaded } from "../ui/states.tsx";
import "./match.css";
import { Scoreboard } from "./scoreboard.tsx";

/** Page of a match: score, the fan's prediction, bonus questions, community picks and chat. */
export function MatchPage({ id }: { id: number }) {
  const { me } = useMe();
  const resource = useResource(
    async (signal) => {
      const path = { event: id };
      const [{ data: match }, own] = await Promise.all([
        matchday.get("/api/auth/events/{event}", { params: { path }, signal }),
        matchday.get("/api/auth/events/{event}/predictions", { params: { path, query: { user_id: me.id } }, signal }),
      ]);
      return { match, own: own.data[0], tally: own.meta };
    },
    [id],
    "match",
  );

  useLive((event) => {
    if (event.kind === "reset") return resource.reload();
    if (event.kind === "chat" || event.kind === "round" || event.kind === "league.rank") return;
    if (event.data.event_id !== id) return;
    if (event.kind === "event") resource.change((all) => ({ ...all, match: updated(all.match, event.data) }));
    if (event.kind === "result") {
      const { advanced } = event.data;
      resource.change((all) => ({ ...all, match: { ...all.match, advanced } }));
    }
    if (event.kind === "tally") resource.change((all) => ({ ...all, tally: { ...all.tally, ...event.data } }));
    if (event.kind === "points") resource.reload();
  });

  const isWide = useIsWide();
  const match = resource.data?.match;
  const rules = useRules(match);
  const seal = useSeal(id, match !== undefined && !isOpen(match) && resource.data?.own !== undefined);
  const [chosen, setTab] = useSessionState<Tab | null>(`match.${id}.tab`, null);
  // The match selects a tab only when its page opens. An open tab never changes under the fan.
  const [initial, setInitial] = useState<Tab>();
  const hasDraft = useHasDraft(id);
  if (match && !initial) setInitial(match.status === "live" && !hasDraft ? "chat" : "prediction");
  const tab = chosen ?? initial ?? "prediction";
  const title = match ? `${match.home_team.name} – ${match.away_team.name}` : "Match";
  return (
    <Page title={title} heading={null} className={`match show-${tab}`}>
      <Back to="/">All matches</Back>
      <Loaded resource={resource}>
        {({ match, own, tally }) => (
          <>
            <Scoreboard match={match} />
            <fieldset className="choice match-choice">
              <legend className="unseen">Show</legend>
              {(["prediction", "chat"] as const).map((value) => (
                <label key={value}>
                  <input type="radio" name="tab" checked={tab === value} onChange={() => setTab(value)} />
                  {names[value]}
                </label>
              ))}
            </fieldset>
            <div className="match-halves">
              <div className="stack match-prediction">
                {isOpen(match) ? (
                  <Loaded resource={rules}>
                    {(rules) => (
                      <Predict
                        match={match}
                        rules={rules}
                        own={own}
                        saved={(own) => resource.change((all) => ({ ...all, own }))}
                        closed={resource.reload}
                      />
                    )}
                  </Loaded>
                ) : (
                  <OwnPrediction match={match} own={own} seal={seal} />
                )}
                <MatchQuestions match={match} />
                <Tally match={match} tally={tally} hasDraws={rules.data?.sport.draws_allowed ?? true} />
              </div>
              {/* On a phone, the chat loads when the fan opens its tab. */}
              {(isWide || tab === "chat") && <Chat match={match} />}
            </div>
          </>
        )}
      </Loaded>
    </Page>
  );
}

type Tab = "prediction" | "chat";
const names: Record<Tab, string> = { prediction: "Prediction", chat: "Chat" };

const wide = window.matchMedia("(min-width: 860px)");
function useIsWide(): boolean {
  return useSyncExternalStore(
    (listener) => {
      wide.addEventListener("change", listener);
      return () => wide.removeEventListener("change", listener);
    },
    () => wide.matches,
  );
}
