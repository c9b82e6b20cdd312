import type { Schemas } from "@matchday/client";

export type Goals = Schemas["ScorePrediction"];

const likely = { home: { home: 1, away: 0 }, draw: { home: 1, away: 1 }, away: { home: 0, away: 1 } };

/** Optional score. A right score earns more points; a wrong one costs none. */
export function ScoreFields(props: {
  home: string;
  away: string;
  goals: Goals | null;
  setGoals: (goals: Goals | null) => void;
  pick: Schemas["Pick"] | undefined;
}) {
  const { home, away, goals, setGoals, pick } = props;
  if (!goals) {
    return (
      <button type="button" className="button quiet low" onClick={() => setGoals(likely[pick ?? "draw"])}>
        Add a score
      </button>
    );
  }
  return (
    <fieldset className="score-fields">
      <legend className="unseen">Score</legend>
      <Stepper name={home} value={goals.home} set={(value) => setGoals({ ...goals, home: value })} />
      <span aria-hidden="true" className="score-dash">
        –
      </span>
      <Stepper name={away} value={goals.away} set={(value) => setGoals({ ...goals, away: value })} />
      <button type="button" className="button quiet low" onClick={() => setGoals(null)}>
        Remove score
      </button>
    </fieldset>
  );
}

function Stepper({ name, value, set }: { name: string; value: number; set: (value: number) => void }) {
  return (
    <span className="stepper">
      <button
        type="button"
        aria-label={`Remove a goal for ${name}`}
        disabled={value <= 0}
        onClick={() => set(value - 1)}
      >
        −
      </button>
      <output className="numbers" aria-label={`Goals for ${name}`}>
        {value}
      </output>
      <button type="button" aria-label={`Add a goal for ${name}`} disabled={value >= 99} onClick={() => set(value + 1)}>
        +
      </button>
    </span>
  );
}
