import type { Schemas } from "@matchday/client";

export type Goals = Schemas["ScorePrediction"];

const likely = { home: { home: 1, away: 0 }, draw: { home: 1, away: 1 }, away: { home: 0, away: 1 } };

/** The score, for those who want to say it: more points if it is right, none lost if it is not. */
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
        Say the score too
      </button>
    );
  }
  return (
    <fieldset className="score-fields">
      <legend className="unseen">The score</legend>
      <Stepper name={home} value={goals.home} set={(value) => setGoals({ ...goals, home: value })} />
      <span aria-hidden="true" className="score-colon">
        :
      </span>
      <Stepper name={away} value={goals.away} set={(value) => setGoals({ ...goals, away: value })} />
      <button type="button" className="button quiet low" onClick={() => setGoals(null)}>
        No score
      </button>
    </fieldset>
  );
}

function Stepper({ name, value, set }: { name: string; value: number; set: (value: number) => void }) {
  return (
    <span className="stepper">
      <button
        type="button"
        aria-label={`One goal less for ${name}`}
        disabled={value <= 0}
        onClick={() => set(value - 1)}
      >
        −
      </button>
      <output className="numbers" aria-label={`Goals of ${name}`}>
        {value}
      </output>
      <button
        type="button"
        aria-label={`One goal more for ${name}`}
        disabled={value >= 99}
        onClick={() => set(value + 1)}
      >
        +
      </button>
    </span>
  );
}
