import { expect, test } from "vitest";
import { dateAndTime } from "../ui/time.ts";
import { lockText } from "./lock.ts";

test("shows the time until a question locks", () => {
  const now = Date.parse("2026-11-20T12:00:00Z");
  const at = (minutes: number) => new Date(now + minutes * 60_000).toISOString();
  const text = (minutes: number) => lockText(at(minutes), now);
  expect([-1, 0, 0.5, 1, 25, 60, 65, 120, 190, 1439].map(text)).toEqual([
    "Locks now",
    "Locks now",
    "Locks in less than a minute",
    "Locks in 1 minute",
    "Locks in 25 minutes",
    "Locks in 1 hour",
    "Locks in 1 hour 5 minutes",
    "Locks in 2 hours",
    "Locks in 3 hours",
    "Locks in 23 hours",
  ]);
  expect(text(1440)).toBe(`Locks ${dateAndTime(at(1440))}`);
});
