import { MatchdayError, type Schemas } from "@matchday/client";
import { type CSSProperties, type FormEvent, type ReactNode, useState } from "react";
import { capitalised, multiplierText, stageLabel } from "../matches/labels.ts";
import { PickExtras, PickText } from "../matches/pick.tsx";
import { matchday, useMe } from "../session/session.ts";
import { Crest } from "../ui/crest.tsx";
import { Name } from "../ui/name.tsx";
import { notifyTabs } from "../ui/refresh.ts";
import { errorMessage } from "../ui/states.tsx";
import { Advances } from "./advances.tsx";
import { advancesOf, scoreOf, withGoals, withPick } from "./draft.ts";
import { useDraft } from "./drafts.ts";
import { Joker } from "./joker.tsx";
import "./predict.css";
import type { Rules } from "./rules.ts";
import { ScoreFields } from "./score-fields.tsx";
import { Stake } from "./stake.tsx";

type Pick = Schemas["Pick"];
interface Props {
  match: Schemas["Event"];
  rules: Rules;
  own: Schemas["ListedPrediction"] | undefined;
  saved: (own: Schemas["ListedPrediction"]) => void;
  /** Called when the service reports that predictions are closed. */
  closed: () => void;
}

/** Form for the outcome, the confidence and the optional parts. Predictions can be changed until kick-off. */
export function Predict({ match, rules, own, saved, closed }: Props) {
  const { me } = useMe();
  const { values, isChanged, edit, discard } = useDraft(match, own);
  const { pick, goals, confidence, joker } = values;
  const { ruleSet, sport } = rules;
  const { score, hint } = scoreOf(goals, sport);
  const hasAdvances = match.is_knockout && ruleSet.advances > 0;
  const advances = advancesOf(values, hasAdvances, sport);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const { home_team: home, away_team: away } = match;

  async function submit(event: FormEvent) {
    event.preventDefault();
    if (!pick || hint) return;
    setBusy(true);
    setError(undefined);
    try {
      const body = { event_id: match.id, prediction: pick, score_prediction: score, confidence, advances, joker };
      const { data } = await matchday.post("/api/auth/predictions", { body });
      const { id, username, name, avatar_url } = me;
      saved({ ...data, user: { id, username, name, ...(avatar_url && { avatar_url }) } });
      discard();
      notifyTabs();
    } catch (error) {
      setError(error);
      if (isClosed(error)) closed();
    }
    setBusy(false);
  }

  const options: { pick: Pick; name: ReactNode; team?: Schemas["EventTeam"] }[] = [
    { pick: "home", name: <Name>{home.name}</Name>, team: home },
    ...(sport.draws_allowed ? [{ pick: "draw" as const, name: "Draw" }] : []),
    { pick: "away", name: <Name>{away.name}</Name>, team: away },
  ];
  return (
    <form className="card stack predict" onSubmit={submit} aria-labelledby="predict">
      <header className="predict-top">
        <h2 id="predict">Your prediction</h2>
        {isChanged ? <span className="tag unsaved">Not saved</span> : own && <span className="tag good">Saved</span>}
      </header>
      {match.multiplier !== 1 && <MultiplierNote match={match} />}
      <fieldset className={`picks${sport.draws_allowed ? "" : " two"}`}>
        <legend className="unseen">Winner</legend>
        {options.map(({ pick: value, name, team }) => (
          <label key={value} className="pick">
            <input
              type="radio"
              name="pick"
              value={value}
              checked={pick === value}
              onChange={() => edit(withPick(values, value, sport))}
            />
            {team ? <Crest team={team} size={30} /> : <span className="draw-sign" aria-hidden="true" />}
            <span>{name}</span>
          </label>
        ))}
      </fieldset>
      <ScoreFields
        home={home.name}
        away={away.name}
        sport={sport}
        goals={goals}
        setGoals={(goals) => edit(withGoals(values, goals, sport))}
        pick={pick}
        hint={hint}
      />
      {hasAdvances && sport.draws_allowed && (
        <Advances match={match} value={advances} choose={(advances) => edit({ ...values, advances })} />
      )}
      <div className="confidence">
        <label htmlFor="confidence">How sure are you?</label>
        <output htmlFor="confidence" className="numbers">
          {confidence}%
        </output>
        <input
          id="confidence"
          type="range"
          min={0}
          max={100}
          step={5}
          value={confidence}
          style={{ "--at": `${confidence}%` } as CSSProperties}
          aria-valuetext={`${confidence}%`}
          onChange={(event) => edit({ ...values, confidence: Number(event.target.value) })}
        />
        <span className="small soft">Just a guess</span>
        <span className="small soft">Certain</span>
      </div>
      {ruleSet.joker > 0 && <Joker count={ruleSet.joker} isOn={joker} set={(joker) => edit({ ...values, joker })} />}
      <Stake
        match={match}
        rules={rules}
        pick={pick}
        score={score}
        confidence={confidence}
        hasAdvances={advances !== null}
        joker={joker}
      />
      {error !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
      <div className={`save${isChanged ? " changed" : ""}`}>
        <p role="status" className={isChanged || own ? "small" : "unseen"}>
          {isChanged && own && (
            <>
              Saved so far: <PickText prediction={own} match={match} />
              <PickExtras prediction={own} match={match} />.
            </>
          )}
          {isChanged && !own && pick && "Not saved yet."}
          {!isChanged && own && (
            <>
              Saved: <PickText prediction={own} match={match} />
              <PickExtras prediction={own} match={match} />.
            </>
          )}
        </p>
        <div className="save-buttons">
          {isChanged && (
            <button type="button" className="button quiet" onClick={discard} disabled={isBusy}>
              Undo
            </button>
          )}
          <button type="submit" className="button" disabled={!pick || hint !== undefined || !isChanged || isBusy}>
            {isBusy ? "Saving…" : !own ? "Save prediction" : isChanged ? "Save changes" : "Saved"}
          </button>
        </div>
      </div>
    </form>
  );
}

/** Shows before the fan predicts that the points of the match are multiplied: "Final: points count double". */
function MultiplierNote({ match }: { match: Schemas["Event"] }) {
  const [stage, text] = [stageLabel(match), multiplierText(match.multiplier)];
  return <p className="multiplier-note">{stage ? `${stage}: ${text}` : capitalised(text)}</p>;
}

const closedCodes = ["event_started", "event_postponed", "event_cancelled", "event_finished"];

function isClosed(error: unknown): boolean {
  return error instanceof MatchdayError && closedCodes.includes(error.code);
}
