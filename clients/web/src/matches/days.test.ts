import type { Schemas } from "@matchday/client";
import { expect, test } from "vitest";
import { until } from "../ui/time.ts";
import { byDay, byState, utcDays } from "./days.ts";
import { isOpen, percentages, signed } from "./labels.ts";

const now = new Date(2026, 10, 20, 12, 0);
const match = (id: number, day: number, hour: number, status: Schemas["EventStatus"], tournament = 1) =>
  ({
    id,
    status,
    status_detail: status,
    tournament: { id: tournament, name: `Cup ${tournament}` },
    start_time: new Date(2026, 10, day, hour).toISOString(),
  }) as Schemas["Event"];

const ids = (matches: Schemas["Event"][]) => matches.map(({ id }) => id);

test("splits matches by state, nearest to now first", () => {
  const { live, upcoming, withoutResult, results } = byState(
    [
      match(1, 22, 18, "scheduled"),
      match(2, 20, 20, "scheduled"),
      match(2, 20, 20, "scheduled"), // on two pages, because the list changed between the requests
      match(3, 21, 15, "scheduled"),
      match(4, 20, 11, "live"),
      match(5, 18, 15, "finished"),
      match(6, 19, 15, "finished"),
      match(7, 20, 11, "scheduled"), // late, but may still start
      match(8, 20, 8, "scheduled"),
      match(9, 1, 15, "scheduled"),
    ],
    now,
  );
  expect([ids(live), ids(upcoming), ids(withoutResult), ids(results)]).toEqual([[4], [7, 2, 3, 1], [8, 9], [6, 5]]);
});

test("groups matches by day and tournament", () => {
  const days = byDay(
    [
      match(1, 20, 20, "scheduled", 1),
      match(2, 20, 20, "scheduled", 2),
      match(3, 20, 21, "scheduled", 1),
      match(4, 21, 12, "scheduled", 2),
      match(5, 22, 12, "scheduled", 2),
    ],
    now,
  );
  expect(
    days.map(({ name, groups }) => [name, ...groups.map((one) => [one.tournament.id, ...ids(one.matches)])]),
  ).toEqual([
    ["Today", [1, 1, 3], [2, 2]],
    ["Tomorrow", [2, 4]],
    ["Sunday 22 November", [2, 5]],
  ]);
});

test("groups matches of a tournament by stage and multiplier", () => {
  const placed = (id: number, stage: string, multiplier = 1) => ({
    ...match(id, 20, 20, "scheduled"),
    ...{ stage, multiplier, is_knockout: true },
  });
  const matches = [placed(1, "final"), placed(2, "third_place"), placed(3, "final"), placed(4, "final", 2)];
  const [day] = byDay(matches, now);
  expect(day?.groups.map(({ stage, multiplier, matches }) => [stage, multiplier, ...ids(matches)])).toEqual([
    ["Final", 1, 1, 3],
    ["Third-place match", 1, 2],
    ["Final", 2, 4],
  ]);
});

test("local day covers one or two UTC days", () => {
  const days = utcDays("2026-11-20");
  expect(days).toContain("2026-11-20");
  expect(days).toHaveLength(new Date(2026, 10, 20).getTimezoneOffset() === 0 ? 1 : 2);
});

test("match is open for predictions until kick-off", () => {
  expect(isOpen(match(1, 20, 13, "scheduled"), now.getTime())).toBe(true);
  expect(isOpen(match(1, 20, 12, "scheduled"), now.getTime())).toBe(false);
  expect(isOpen(match(1, 20, 13, "live"), now.getTime())).toBe(false);
});

test("points have a sign, with a typographic minus", () => {
  expect([signed(3), signed(0), signed(-11)]).toEqual(["+3", "0", "−11"]);
});

test("percentages always add up to 100", () => {
  expect(percentages([1, 1, 1])).toEqual([34, 33, 33]);
  expect(percentages([5, 1, 2])).toEqual([63, 12, 25]); // rounding each gives 101
  expect(percentages([0, 0, 0])).toEqual([0, 0, 0]);
  for (let home = 0; home < 40; home += 1) {
    for (let draw = 0; draw < 40; draw += 1) {
      const parts = percentages([home, draw, 7]);
      expect(parts.reduce((sum, part) => sum + part, 0)).toBe(100);
    }
  }
});

test("shows the time until kick-off", () => {
  const at = (minutes: number) => until(new Date(now.getTime() + minutes * 60_000).toISOString(), now.getTime());
  expect([at(-1), at(25), at(60), at(185), at(3000)]).toEqual([
    undefined,
    "in 25 min",
    "in 1 h",
    "in 3 h 5 min",
    undefined,
  ]);
});
