import { MatchdayError } from "@matchday/client";
import { expect, test, vi } from "vitest";

vi.mock("../session/session.ts", () => ({ matchday: {} }));
vi.mock("../ui/refresh.ts", () => ({ notifyTabs: () => {} }));
const { isRefused, joinMessage } = await import("./join.ts");

const error = (status: number, code: string, facts = {}) => new MatchdayError("Refused.", { status, code, ...facts });

test("every refusal has its own sentence", () => {
  expect(joinMessage(error(404, "not_found"))).toMatch(/^No league has this code/);
  expect(joinMessage(error(422, "validation_failed"))).toMatch(/^No league has this code/);
  expect(joinMessage(error(409, "league_full"))).toMatch(/is full/);
  expect(joinMessage(error(403, "removed_from_league"))).toMatch(/removed you/);
  expect(joinMessage(error(409, "too_many_leagues"))).toMatch(/as many leagues as possible/);
  expect(joinMessage(error(429, "rate_limited", { retryAfter: 61 }))).toBe(
    "Too many unknown codes. Try again in 61 seconds.",
  );
});

test("only rate limits and failures are worth a retry", () => {
  expect(isRefused(error(409, "league_full"))).toBe(true);
  expect(isRefused(error(429, "rate_limited"))).toBe(false);
  expect(isRefused(error(0, "no_response"))).toBe(false);
  expect(isRefused(error(503, "overloaded"))).toBe(false);
});
