import { expect, test } from "vitest";
import { counted, multiplierText, ordinal, stageLabel, stageName } from "./labels.ts";

test("stages have readable names", () => {
  expect(["quarter_final", "semi_finals", "round_of_16", "final", "relegation_play-off"].map(stageName)).toEqual([
    "Quarter-final",
    "Semi-final",
    "Round of 16",
    "Final",
    "Relegation play off",
  ]);
});

test("label of a match names its stage, its round or both", () => {
  const label = (stage: string | null, round: number | null, is_knockout = false) =>
    stageLabel({ stage, round, is_knockout });
  expect(label("final", 7, true)).toBe("Final");
  expect(label("group", 2)).toBe("Group stage, round 2");
  expect(label("regular_season", 12)).toBe("Round 12");
  expect(label(null, 3)).toBe("Round 3");
  expect(label(null, 4, true)).toBe("Round 4");
  expect(label("group", null)).toBe("Group stage");
  expect(label(null, null)).toBeUndefined();
});

test("multipliers are words where English has one", () => {
  expect([1.5, 2, 3].map(multiplierText)).toEqual([
    "points count 1.5 times",
    "points count double",
    "points count triple",
  ]);
});

test("numbers have their noun and their ending", () => {
  expect([1, 0, 1200].map((number) => counted(number, "member"))).toEqual(["1 member", "0 members", "1,200 members"]);
  expect([1, 2, 3, 4, 11, 12, 13, 21, 102].map(ordinal)).toEqual([
    "1st",
    "2nd",
    "3rd",
    "4th",
    "11th",
    "12th",
    "13th",
    "21st",
    "102nd",
  ]);
});
