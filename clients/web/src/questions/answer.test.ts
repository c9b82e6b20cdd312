import { expect, test } from "vitest";
import { answerOf, draftOf, hintOf, isSame, pointsText, rightOf, toggled } from "./answer.ts";

const choice = { kind: "choice", pick: null } as const;
const team = { kind: "team", pick: null } as const;
const number = { kind: "number", pick: null } as const;
const several = { kind: "several_of", pick: 2 } as const;

test("saved answer is the draft of the form", () => {
  expect([null, "ada", 7, ["ada", "bea"]].map(draftOf)).toEqual([[], ["ada"], ["7"], ["ada", "bea"]]);
});

test("complete draft is an answer of its kind", () => {
  expect(answerOf(choice, ["ada"])).toBe("ada");
  expect(answerOf(team, ["12"])).toBe(12);
  expect(answerOf(number, ["0"])).toBe(0);
  expect(answerOf(number, ["1000000"])).toBe(1_000_000);
  expect(answerOf(several, ["bea", "ada"])).toEqual(["bea", "ada"]);
});

test("incomplete draft is no answer, and the hint names the next step", () => {
  for (const question of [choice, team, number, several]) {
    expect(answerOf(question, [])).toBeUndefined();
    expect(hintOf(question, [])).toBeUndefined();
  }
  expect(answerOf(several, ["ada"])).toBeUndefined();
  expect(hintOf(several, ["ada"])).toBe("Pick 1 more.");
  expect(hintOf(several, ["ada", "bea"])).toBeUndefined();
  expect(answerOf(several, ["ada", "bea", "cay"])).toBeUndefined();
  expect(hintOf(several, ["ada", "bea", "cay"])).toBe("Remove 1: this question takes 2 picks.");
  expect(answerOf(number, ["1000001"])).toBeUndefined();
  expect(hintOf(number, ["1000001"])).toBe("The highest number is 1,000,000.");
});

test("order of options does not change an answer", () => {
  expect(isSame(["ada", "bea"], ["bea", "ada"])).toBe(true);
  expect(isSame(["ada"], ["ada", "bea"])).toBe(false);
  expect(toggled(toggled([], "ada"), "ada")).toEqual([]);
});

test("right answers are a list for every kind", () => {
  expect([null, ["ada"], [7, 8], 9].map((resolution) => rightOf({ resolution }))).toEqual([
    [],
    ["ada"],
    ["7", "8"],
    ["9"],
  ]);
});

test("points of several picks count for each", () => {
  expect(pointsText({ kind: "choice", points: 1 })).toBe("1 point");
  expect(pointsText({ kind: "several_of", points: 1000 })).toBe("1,000 points per right pick");
});
