import { MatchdayError, type Schemas } from "@matchday/client";
import { type CSSProperties, type FormEvent, useState } from "react";
import { said } from "../matches/words.ts";
import { matchday, useMe } from "../session/session.ts";
import { Crest } from "../ui/crest.tsx";
import { inWords } from "../ui/states.tsx";
import "./predict.css";
import { type Goals, ScoreFields } from "./score-fields.tsx";
import { Stake } from "./stake.tsx";

type Pick = Schemas["Pick"];
interface Props {
  match: Schemas["Event"];
  own: Schemas["ListedPrediction"] | undefined;
  saved: (own: Schemas["ListedPrediction"]) => void;
}

/** Who wins, perhaps how, and how sure one is. It can be said again until the match begins. */
export function Predict({ match, own, saved }: Props) {
  const { me } = useMe();
  const [pick, setPick] = useState<Pick | undefined>(own?.prediction);
  const [goals, setGoals] = useState<Goals | null>(own?.score_prediction ?? null);
  const [confidence, setConfidence] = useState(own?.confidence ?? 50);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const [word, setWord] = useState("");
  const { home_team: home, away_team: away } = match;

  function choose(pick: Pick) {
    setPick(pick);
    // A score that says something else is none any more.
    if (goals && outcome(goals) !== pick) setGoals(null);
  }
  function score(goals: Goals | null) {
    setGoals(goals);
    if (goals) setPick(outcome(goals));
  }
  async function submit(event: FormEvent) {
    event.preventDefault();
    if (!pick) return;
    setBusy(true);
    setError(undefined);
    setWord("");
    try {
      const body = { event_id: match.id, prediction: pick, score_prediction: goals, confidence };
      const { data } = await matchday.post("/api/auth/predictions", { body });
      saved({ ...data, user: { id: me.id, username: me.username, name: me.name } });
      setWord(`Saved: ${said(data, home.name, away.name)}.`);
    } catch (error) {
      setError(error);
    }
    setBusy(false);
  }

  const options: { pick: Pick; name: string; team?: Schemas["EventTeam"] }[] = [
    { pick: "home", name: home.name, team: home },
    { pick: "draw", name: "Draw" },
    { pick: "away", name: away.name, team: away },
  ];
  return (
    <form className="card stack predict" onSubmit={submit} aria-labelledby="predict">
      <h2 id="predict">{own ? "Your prediction" : "What do you say?"}</h2>
      <fieldset className="picks">
        <legend className="unseen">Who wins</legend>
        {options.map(({ pick: value, name, team }) => (
          <label key={value} className="pick">
            <input type="radio" name="pick" value={value} checked={pick === value} onChange={() => choose(value)} />
            {team ? <Crest team={team} size={30} /> : <span className="draw-sign" aria-hidden="true" />}
            <span>{name}</span>
          </label>
        ))}
      </fieldset>
      <ScoreFields home={home.name} away={away.name} goals={goals} setGoals={score} pick={pick} />
      <div className="confidence">
        <label htmlFor="confidence">How sure are you?</label>
        <output htmlFor="confidence" className="numbers">
          {confidence} %
        </output>
        <input
          id="confidence"
          type="range"
          min={0}
          max={100}
          step={5}
          value={confidence}
          style={{ "--at": `${confidence}%` } as CSSProperties}
          aria-valuetext={`${confidence} percent`}
          onChange={(event) => setConfidence(Number(event.target.value))}
        />
        <span className="small soft">Just a guess</span>
        <span className="small soft">Certain</span>
      </div>
      <Stake match={match.id} pick={pick} goals={goals} confidence={confidence} />
      {error !== undefined && (
        <p className="notice" role="alert">
          {closed(error) ? "It has begun: no more predictions." : inWords(error)}
        </p>
      )}
      <button type="submit" className="button wide" disabled={!pick || isBusy}>
        {isBusy ? "Saving…" : own ? "Change it" : "Predict"}
      </button>
      <p role="status" className={word ? "saved" : "unseen"}>
        {word}
      </p>
    </form>
  );
}

function outcome({ home, away }: Goals): Pick {
  return home > away ? "home" : home < away ? "away" : "draw";
}

function closed(error: unknown): boolean {
  return error instanceof MatchdayError && error.code === "event_started";
}
