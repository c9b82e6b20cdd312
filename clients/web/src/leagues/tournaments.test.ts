import { expect, test, vi } from "vitest";

vi.mock("../session/session.ts", () => ({ matchday: {}, onSessionEnd: new Set() }));
vi.mock("../ui/refresh.ts", () => ({ reloads: new Set() }));
const { playable } = await import("./tournaments.ts");

test("tournaments with the next match come first, those without matches are left out", () => {
  const named = (id: number) => ({ id, name: `Cup ${id}` });
  const at = (day: number) => `2026-11-${day}T15:00:00Z`;
  const found = playable([1, 2, 3, 4, 5].map(named), [
    { status: "finished", start_time: at(10) },
    { status: "scheduled", start_time: at(22) },
    undefined,
    { status: "live", start_time: at(20) },
    { status: "finished", start_time: at(12) },
  ]);
  expect(found).toEqual([
    { id: 4, name: "Cup 4", next: at(20) },
    { id: 2, name: "Cup 2", next: at(22) },
    { id: 1, name: "Cup 1", next: undefined },
    { id: 5, name: "Cup 5", next: undefined },
  ]);
});
