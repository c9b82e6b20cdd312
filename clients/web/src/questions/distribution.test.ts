import type { Schemas } from "@matchday/client";
import { expect, test } from "vitest";
import type { Question } from "./answer.ts";
import { barsOf } from "./distribution.ts";

const question = (facts: Partial<Question>) =>
  ({ kind: "choice", options: null, resolution: null, my_answer: null, ...facts }) as Question;
const own = (answer: Schemas["Answer"]) => ({ answer }) as Schemas["OwnAnswer"];
const options = ["ada", "bea", "cay"].map((key) => ({ key, label: key.toUpperCase() }));
const counted = (total_answers: number, distribution: Record<string, number>) => ({
  data: [],
  meta: { total_answers, distribution, next_cursor: null },
});
const numbers = (answers: number[], next_cursor: string | null = null) => ({
  data: answers.map((answer) => ({ answer }) as Schemas["ListedAnswer"]),
  meta: { total_answers: answers.length, distribution: null, next_cursor },
});

test("options are sorted by answers, including those without any", () => {
  const bars = barsOf(
    question({ options, resolution: ["ada"], my_answer: own("bea") }),
    [],
    counted(3, { bea: 2, cay: 1 }),
  );
  expect(bars?.map(({ label, share, isOwn, isRight }) => [label, share, isOwn, isRight])).toEqual([
    ["BEA", 67, true, false],
    ["CAY", 33, false, false],
    ["ADA", 0, false, true],
  ]);
});

test("shares of several picks refer to the answers", () => {
  const bars = barsOf(question({ kind: "several_of", options }), [], counted(4, { ada: 4, bea: 3, cay: 1 }));
  expect(bars?.map(({ share }) => share)).toEqual([100, 75, 25]);
});

test("teams without answers are left out, unless they are right", () => {
  const teams = [1, 2, 3].map((id) => ({ id, name: `Team ${id}` }));
  const bars = barsOf(question({ kind: "team", resolution: [3] }), teams, counted(5, { 2: 5 }));
  expect(bars?.map(({ label, isRight }) => [label, isRight])).toEqual([
    ["Team 2", false],
    ["Team 3", true],
  ]);
});

test("few numbers have a bar each, and many are combined", () => {
  const few = barsOf(question({ kind: "number", my_answer: own(9), resolution: 7 }), [], numbers([9, 7, 9]));
  expect(few?.map(({ label, count, isOwn, isRight }) => [label, count, isOwn, isRight])).toEqual([
    ["7", 1, false, true],
    ["9", 2, true, false],
  ]);
  const many = barsOf(question({ kind: "number" }), [], numbers(Array.from({ length: 60 }, (_, index) => index)));
  expect(many?.map(({ label, count }) => [label, count])).toEqual([
    ["0–9", 10],
    ["10–19", 10],
    ["20–29", 10],
    ["30–39", 10],
    ["40–49", 10],
    ["50–59", 10],
  ]);
});

test("incomplete list of numbers has no bars", () => {
  expect(barsOf(question({ kind: "number" }), [], numbers([1], "next"))).toBeUndefined();
});
