import { MatchdayError } from "@matchday/client";
import { expect, test } from "vitest";
import { errorMessage } from "./states.tsx";

test("error messages have one sentence about retrying", () => {
  const error = (code: string, message: string, facts = {}) =>
    errorMessage(new MatchdayError(message, { status: 400, code, ...facts }));
  expect(error("rate_limited", "Too many requests. Try again later.", { status: 429, retryAfter: 5 })).toBe(
    "Too many requests. Try again in 5 seconds.",
  );
  expect(error("rate_limited", "Too many requests. Try again later.", { retryAfter: 0.4 })).toMatch(/in 1 second\.$/);
  expect(error("invalid_code", "The code is invalid or has expired.")).toBe("Wrong or expired code.");
  expect(error("not_found", "Not found.")).toMatch(/no longer available/);
  expect(error("no_joker_left", "You have no joker left.")).toMatch(/Switch it off to save/);
  expect(error("event_postponed", "This match is postponed.")).toBe("This match is postponed.");
  expect(error("internal_error", "Something went wrong on our side.", { status: 500, requestId: "r-1" })).toBe(
    "Something went wrong on our side. (Reference: r-1)",
  );
});
