import { expect, test } from "vitest";
import { roundsOf } from "./rounds.ts";

test("rounds are in order and named after their stage", () => {
  const match = (round: number | null, stage: string | null) => ({ round, stage });
  expect(
    roundsOf([
      match(12, "final"),
      match(2, null),
      match(2, null),
      match(11, "semi_final"),
      match(11, "third_place"),
      match(null, "friendly"),
      match(1, "regular_season"),
    ]),
  ).toEqual([
    { round: 1, name: "Round 1" },
    { round: 2, name: "Round 2" },
    { round: 11, name: "Round 11" },
    { round: 12, name: "Round 12: Final" },
  ]);
});
