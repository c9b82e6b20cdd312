import type { Schemas } from "@matchday/client";
import { type Goals, isHighScoring } from "./draft.ts";

type Sport = Pick<Schemas["Sport"], "name" | "draws_allowed" | "max_score">;

const likely = { home: { home: 1, away: 0 }, draw: { home: 1, away: 1 }, away: { home: 0, away: 1 } };

interface Props {
  home: string;
  away: string;
  sport: Sport;
  goals: Goals | null;
  setGoals: (goals: Goals | null) => void;
  pick: Schemas["Pick"] | undefined;
  /** What is wrong with the score. */
  hint: string | undefined;
}

/** Optional score. A right score earns more points; a wrong one costs none. */
export function ScoreFields(props: Props) {
  const { home, away, sport, goals, setGoals, pick, hint } = props;
  const isEntered = isHighScoring(sport);
  if (!goals && !isEntered) {
    const first = likely[pick ?? (sport.draws_allowed ? "draw" : "home")];
    return (
      <button type="button" className="button quiet low" onClick={() => setGoals(first)}>
        Add a score
      </button>
    );
  }
  const values = goals ?? { home: null, away: null };
  const set = (side: keyof Goals) => (value: number | null) => {
    const next = { ...values, [side]: value };
    setGoals(next.home === null && next.away === null ? null : next);
  };
  const Field = isEntered ? NumberField : Stepper;
  return (
    <fieldset className="score-fields">
      <legend className={isEntered ? undefined : "unseen"}>
        Score{isEntered && <span className="small soft"> – optional</span>}
      </legend>
      <Field name={home} value={values.home} set={set("home")} max={sport.max_score} hint={hint} />
      <span aria-hidden="true" className="score-dash">
        –
      </span>
      <Field name={away} value={values.away} set={set("away")} max={sport.max_score} hint={hint} />
      {!isEntered && (
        <button type="button" className="button quiet low" onClick={() => setGoals(null)}>
          Remove score
        </button>
      )}
      <p id="score-hint" role="status" className="score-hint fault">
        {hint}
      </p>
    </fieldset>
  );
}

interface FieldProps {
  name: string;
  value: number | null;
  set: (value: number | null) => void;
  max: number;
  hint: string | undefined;
}

function NumberField({ name, value, set, max, hint }: FieldProps) {
  const digits = String(max).length;
  return (
    <input
      className="score-number numbers"
      inputMode="numeric"
      autoComplete="off"
      placeholder="0"
      maxLength={digits}
      aria-label={`Score for ${name}`}
      aria-invalid={hint !== undefined}
      aria-describedby="score-hint"
      value={value ?? ""}
      onFocus={({ target }) => target.select()}
      onChange={({ target }) => {
        const text = target.value.replaceAll(/\D/g, "").slice(0, digits);
        set(text === "" ? null : Number(text));
        // The first change shows the sticky save bar, which may cover the field.
        requestAnimationFrame(() => target.scrollIntoView({ block: "nearest" }));
      }}
    />
  );
}

function Stepper({ name, value, set, max }: FieldProps) {
  const goals = value ?? 0;
  return (
    <span className="stepper">
      <button
        type="button"
        aria-label={`Remove a goal for ${name}`}
        disabled={goals <= 0}
        onClick={() => set(goals - 1)}
      >
        −
      </button>
      <output className="numbers" aria-label={`Goals for ${name}`}>
        {goals}
      </output>
      <button
        type="button"
        aria-label={`Add a goal for ${name}`}
        disabled={goals >= max}
        onClick={() => set(goals + 1)}
      >
        +
      </button>
    </span>
  );
}
