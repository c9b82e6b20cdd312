import { expect, test } from "vitest";
import { titleOf } from "./title.ts";

type Update = Parameters<typeof titleOf>[0];
const scored = (home_score: number, away_score: number, changes: Partial<Update> = {}): Update => ({
  home_score,
  away_score,
  status: "live",
  status_detail: "live",
  changed: ["score"],
  ...changes,
});

test("change of a live score is a goal, a disallowed goal or a correction", () => {
  const before = scored(1, 1);
  expect(titleOf(scored(2, 1), before)).toBe("Goal");
  expect(titleOf(scored(2, 3), before)).toBe("Goal");
  expect(titleOf(scored(1, 0), before)).toBe("Goal disallowed");
  expect(titleOf(scored(0, 1), before)).toBe("Goal disallowed");
  expect(titleOf(scored(2, 0), before)).toBe("Score corrected");
  expect(titleOf(scored(2, 1), undefined)).toBe("Goal");
});

test("score of a finished match is corrected", () => {
  const finished = { status: "finished", status_detail: "finished" } as const;
  expect(titleOf(scored(1, 0, finished), scored(1, 1))).toBe("Score corrected");
  expect(titleOf(scored(2, 1, finished), scored(1, 1))).toBe("Score corrected");
});

test("start and end of a match are announced, and a new kick-off time is not", () => {
  expect(titleOf(scored(0, 0, { changed: ["status", "score"] }), undefined)).toBe("Kick-off");
  const finished = { status: "finished", status_detail: "finished", changed: ["status"] } as const;
  expect(titleOf(scored(1, 0, { ...finished, changed: ["status"] }), undefined)).toBe("Full time");
  expect(titleOf(scored(0, 0, { changed: ["start_time"] }), undefined)).toBeUndefined();
});
