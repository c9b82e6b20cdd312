import type { Schemas } from "@matchday/client";

type Outcome = Schemas["Pick"];
type Score = Schemas["ScorePrediction"];
type Sport = Pick<Schemas["Sport"], "name" | "draws_allowed" | "max_score">;

/** A score while the fan enters it. A side is `null` while its field is empty. */
export interface Goals {
  home: number | null;
  away: number | null;
}

/** Values of the prediction form. */
export interface Draft {
  pick: Outcome | undefined;
  goals: Goals | null;
  confidence: number;
  advances: Schemas["Side"] | null;
  joker: boolean;
}
export type Saved = Pick<
  Schemas["ListedPrediction"],
  "prediction" | "score_prediction" | "confidence" | "advances" | "joker"
>;

const untouched: Draft = { pick: undefined, goals: null, confidence: 50, advances: null, joker: false };

export function draftOf(saved: Saved | undefined): Draft {
  if (!saved) return untouched;
  const { prediction: pick, score_prediction: goals, confidence, advances, joker } = saved;
  return { pick, goals, confidence, advances, joker };
}

export function isSame(one: Draft, other: Draft): boolean {
  const text = ({ pick, goals, confidence, advances, joker }: Draft) =>
    JSON.stringify([pick, goals?.home ?? null, goals?.away ?? null, confidence, advances, joker]);
  return text(one) === text(other);
}

/** Scores of this sport are entered as numbers, because they are too high for buttons that add one. */
export const isHighScoring = ({ max_score }: Pick<Sport, "max_score">): boolean => max_score > 99;

/** Complete score of the form, or a hint at what is wrong with it. Without a score, both are missing. */
export function scoreOf(goals: Goals | null, sport: Sport): { score: Score | null; hint?: string } {
  const { home, away } = goals ?? { home: null, away: null };
  if (home === null && away === null) return { score: null };
  if (home === null || away === null) return { score: null, hint: "Enter both scores, or leave both empty." };
  if (Math.max(home, away) > sport.max_score) return { score: null, hint: `The highest score is ${sport.max_score}.` };
  if (home === away && !sport.draws_allowed) {
    return { score: null, hint: `${sport.name} has no draws. Change one of the scores.` };
  }
  return { score: { home, away } };
}

/** Draft with another outcome. A score that contradicts it is removed. */
export function withPick(draft: Draft, pick: Outcome, sport: Sport): Draft {
  const { score } = scoreOf(draft.goals, sport);
  const goals = score && outcome(score) !== pick ? null : draft.goals;
  return followed({ ...draft, pick, goals }, sport);
}

/** Draft with another score, which determines the outcome once it is complete. */
export function withGoals(draft: Draft, goals: Goals | null, sport: Sport): Draft {
  const { score } = scoreOf(goals, sport);
  return followed({ ...draft, goals, pick: score ? outcome(score) : draft.pick }, sport);
}

/** In a sport without draws, the winner advances. */
function followed(draft: Draft, sport: Sport): Draft {
  if (sport.draws_allowed || draft.advances === null || draft.pick === undefined || draft.pick === "draw") return draft;
  return { ...draft, advances: draft.pick };
}

/** Team to advance that is saved with a draft. */
export function advancesOf({ pick, advances }: Draft, isKnockout: boolean, sport: Sport): Schemas["Side"] | null {
  if (!isKnockout) return null;
  if (sport.draws_allowed) return advances;
  return pick === undefined || pick === "draw" ? null : pick;
}

function outcome({ home, away }: Score): Outcome {
  return home > away ? "home" : home < away ? "away" : "draw";
}
