import type { Schemas } from "@matchday/client";
import { expect, test } from "vitest";
import { until } from "../ui/time.ts";
import { byDay } from "./days.ts";
import { isOpen, said, signed } from "./words.ts";

const now = new Date(2026, 10, 20, 12, 0);
const match = (id: number, day: number, hour: number, status: Schemas["EventStatus"]) =>
  ({ id, status, status_detail: status, start_time: new Date(2026, 10, day, hour).toISOString() }) as Schemas["Event"];

test("days go away from now, in both directions", () => {
  const { live, toCome, over } = byDay(
    [
      match(1, 22, 18, "scheduled"),
      match(2, 20, 20, "scheduled"),
      match(3, 21, 15, "scheduled"),
      match(4, 20, 11, "live"),
      match(5, 18, 15, "finished"),
      match(6, 19, 15, "finished"),
      match(7, 21, 12, "scheduled"),
    ],
    now,
  );
  expect(live.map(({ id }) => id)).toEqual([4]);
  expect(toCome.map(({ name, matches }) => [name, ...matches.map(({ id }) => id)])).toEqual([
    ["Today", 2],
    ["Tomorrow", 7, 3],
    ["Sunday 22 November", 1],
  ]);
  expect(over.map(({ name, matches }) => [name, ...matches.map(({ id }) => id)])).toEqual([
    ["Yesterday", 6],
    ["Wednesday 18 November", 5],
  ]);
});

test("a match is open until it begins", () => {
  expect(isOpen(match(1, 20, 13, "scheduled"), now.getTime())).toBe(true);
  expect(isOpen(match(1, 20, 12, "scheduled"), now.getTime())).toBe(false);
  expect(isOpen(match(1, 20, 13, "live"), now.getTime())).toBe(false);
});

test("predictions and points read well", () => {
  expect(said({ prediction: "home", score_prediction: { home: 2, away: 1 }, confidence: 70 }, "Rovers", "City")).toBe(
    "Rovers 2–1, 70 %",
  );
  expect(said({ prediction: "draw", score_prediction: null, confidence: 0 }, "Rovers", "City")).toBe("Draw");
  expect([signed(3), signed(0), signed(-11)]).toEqual(["+3", "0", "−11"]);
});

test("how long it is until then", () => {
  const at = (minutes: number) => until(new Date(now.getTime() + minutes * 60_000).toISOString(), now.getTime());
  expect([at(-1), at(25), at(60), at(185), at(3000)]).toEqual([
    undefined,
    "in 25 min",
    "in 1 h",
    "in 3 h 5 min",
    undefined,
  ]);
});
