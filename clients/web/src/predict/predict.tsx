import { MatchdayError, type Schemas } from "@matchday/client";
import { type CSSProperties, type FormEvent, type ReactNode, useState } from "react";
import { PickText } from "../matches/pick.tsx";
import { matchday, useMe } from "../session/session.ts";
import { Crest } from "../ui/crest.tsx";
import { Name } from "../ui/name.tsx";
import { notifyTabs } from "../ui/refresh.ts";
import { errorMessage } from "../ui/states.tsx";
import { useDraft } from "./drafts.ts";
import "./predict.css";
import { type Goals, ScoreFields } from "./score-fields.tsx";
import { Stake } from "./stake.tsx";

type Pick = Schemas["Pick"];
interface Props {
  match: Schemas["Event"];
  own: Schemas["ListedPrediction"] | undefined;
  saved: (own: Schemas["ListedPrediction"]) => void;
  /** Called when the service reports that predictions are closed. */
  closed: () => void;
}

/** Form for the outcome, the optional score and the confidence. Predictions can be changed until kick-off. */
export function Predict({ match, own, saved, closed }: Props) {
  const { me } = useMe();
  const { values, isChanged, edit, discard } = useDraft(match.id, own);
  const { pick, goals, confidence } = values;
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const { home_team: home, away_team: away } = match;

  function choose(pick: Pick) {
    // A score that contradicts the new outcome is removed.
    edit({ ...values, pick, goals: goals && outcome(goals) === pick ? goals : null });
  }
  async function submit(event: FormEvent) {
    event.preventDefault();
    if (!pick) return;
    setBusy(true);
    setError(undefined);
    try {
      const body = { event_id: match.id, prediction: pick, score_prediction: goals, confidence };
      const { data } = await matchday.post("/api/auth/predictions", { body });
      saved({ ...data, user: { id: me.id, username: me.username, name: me.name } });
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
    { pick: "draw", name: "Draw" },
    { pick: "away", name: <Name>{away.name}</Name>, team: away },
  ];
  return (
    <form className="card stack predict" onSubmit={submit} aria-labelledby="predict">
      <header className="predict-top">
        <h2 id="predict">Your prediction</h2>
        {isChanged ? <span className="tag unsaved">Not saved</span> : own && <span className="tag good">Saved</span>}
      </header>
      <fieldset className="picks">
        <legend className="unseen">Winner</legend>
        {options.map(({ pick: value, name, team }) => (
          <label key={value} className="pick">
            <input type="radio" name="pick" value={value} checked={pick === value} onChange={() => choose(value)} />
            {team ? <Crest team={team} size={30} /> : <span className="draw-sign" aria-hidden="true" />}
            <span>{name}</span>
          </label>
        ))}
      </fieldset>
      <ScoreFields
        home={home.name}
        away={away.name}
        goals={goals}
        setGoals={(goals) => edit({ ...values, goals, pick: goals ? outcome(goals) : pick })}
        pick={pick}
      />
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
      <Stake match={match.id} pick={pick} goals={goals} confidence={confidence} />
      {error !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
      <div className={`save${isChanged ? " changed" : ""}`}>
        <p role="status" className={isChanged || own ? "small" : "unseen"}>
          {isChanged && own && (
            <>
              Saved so far: <PickText prediction={own} match={match} />.
            </>
          )}
          {isChanged && !own && pick && "Not saved yet."}
          {!isChanged && own && (
            <>
              Saved: <PickText prediction={own} match={match} />.
            </>
          )}
        </p>
        <div className="save-buttons">
          {isChanged && (
            <button type="button" className="button quiet" onClick={discard} disabled={isBusy}>
              Undo
            </button>
          )}
          <button type="submit" className="button" disabled={!pick || !isChanged || isBusy}>
            {isBusy ? "Saving…" : !own ? "Save prediction" : isChanged ? "Save changes" : "Saved"}
          </button>
        </div>
      </div>
    </form>
  );
}

function outcome({ home, away }: Goals): Pick {
  return home > away ? "home" : home < away ? "away" : "draw";
}

const closedCodes = ["event_started", "event_postponed", "event_cancelled", "event_finished"];

function isClosed(error: unknown): boolean {
  return error instanceof MatchdayError && closedCodes.includes(error.code);
}
