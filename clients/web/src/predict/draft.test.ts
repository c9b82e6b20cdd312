import { expect, test } from "vitest";
import { advancesOf, draftOf, isSame, scoreOf, withGoals, withPick } from "./draft.ts";

const football = { name: "Football", draws_allowed: true, max_score: 99 };
const basketball = { name: "Basketball", draws_allowed: false, max_score: 299 };
const empty = draftOf(undefined);

test("complete score sets the outcome", () => {
  expect(withGoals(empty, { home: 90, away: null }, basketball).pick).toBeUndefined();
  expect(withGoals(empty, { home: 90, away: 101 }, basketball).pick).toBe("away");
  expect(withGoals(empty, { home: 1, away: 1 }, football).pick).toBe("draw");
});

test("new outcome removes a score that contradicts it", () => {
  const draft = withGoals(empty, { home: 2, away: 1 }, football);
  expect(withPick(draft, "home", football).goals).toEqual({ home: 2, away: 1 });
  expect(withPick(draft, "draw", football).goals).toBeNull();
});

test("hints at an incomplete, too high or level score", () => {
  expect(scoreOf({ home: 90, away: null }, basketball).hint).toBe("Enter both scores, or leave both empty.");
  expect(scoreOf({ home: 300, away: 90 }, basketball).hint).toBe("The highest score is 299.");
  expect(scoreOf({ home: 90, away: 90 }, basketball).hint).toBe("Basketball has no draws. Change one of the scores.");
  // A level score keeps the outcome while the fan is typing.
  const draft = withGoals(withPick(empty, "away", basketball), { home: 90, away: 90 }, basketball);
  expect(draft.pick).toBe("away");
  expect(scoreOf({ home: 1, away: 1 }, football)).toEqual({ score: { home: 1, away: 1 } });
  expect(scoreOf(null, football)).toEqual({ score: null });
});

test("team to advance follows the pick only without draws", () => {
  const draft = { ...withPick(empty, "home", football), advances: "away" as const };
  expect(advancesOf(draft, true, football)).toBe("away");
  expect(advancesOf(draft, true, basketball)).toBe("home");
  expect(advancesOf(draft, false, football)).toBeNull();
  expect(withPick(draft, "away", basketball).advances).toBe("away");
  expect(withPick(draft, "draw", football).advances).toBe("away");
});

test("draft is unchanged if all values are as saved", () => {
  const saved = {
    prediction: "draw" as const,
    score_prediction: { home: 1, away: 1 },
    confidence: 50,
    advances: "home" as const,
    joker: true,
  };
  const draft = draftOf(saved);
  expect(isSame(draft, draftOf(saved))).toBe(true);
  expect(isSame({ ...draft, joker: false }, draft)).toBe(false);
  expect(isSame({ ...draft, advances: null }, draft)).toBe(false);
  expect(isSame({ ...draft, goals: null }, draft)).toBe(false);
});
