import type { ServerResponse } from "node:http";
import { expect, onTestFinished, test, vi } from "vitest";
import { Matchday, memoryStorage, type StreamEvent, type StreamOptions } from "../src/index.js";
import { json, serve } from "./server.js";

const quick: StreamOptions = { firstPause: 0.01, longestPause: 0.05, silence: 5 };
const open = (response: ServerResponse, text = "") =>
  response.writeHead(200, { "Content-Type": "text/event-stream" }).write(text || ": connected\n\n");
const points = (id: string, earned: number) =>
  `id: ${id}\nevent: points\ndata: {"event_id":5,"points_earned":${earned}}\n\n`;
const fan = (baseUrl: string) => new Matchday({ baseUrl, storage: memoryStorage("md_1_x") });

async function take(stream: AsyncIterable<StreamEvent>, count: number): Promise<StreamEvent[]> {
  const events: StreamEvent[] = [];
  for await (const event of stream) {
    events.push(event);
    if (events.length === count) break;
  }
  return events;
}

test("yields typed events and skips unknown kinds and empty blocks", async () => {
  const { url, received } = await serve((response) =>
    open(
      response,
      `id: 1-1\n\nid: 1-2\nevent: surprise\ndata: {}\n\n${points("1-3", 48)}event: reset\ndata: {}\n\nid: 1-4\nevent: rank\ndata: {"event_id":5,"rank":9,"of":24,"points":64}\n\nid: 1-5\nevent: round\ndata: {"tournament_id":1,"round":7,"winners":[],"points":null}\n\nid: 1-6\nevent: league.rank\ndata: {"league_id":3,"rank":2,"previous_rank":4,"points":90}\n\n`,
    ),
  );
  const events = await take(fan(url).stream({ event_id: 5, mine: true }, quick), 5);
  expect(events).toEqual([
    { id: "1-3", kind: "points", data: { event_id: 5, points_earned: 48 } },
    { id: "1-3", kind: "reset", data: {} },
    { id: "1-4", kind: "rank", data: { event_id: 5, rank: 9, of: 24, points: 64 } },
    { id: "1-5", kind: "round", data: { tournament_id: 1, round: 7, winners: [], points: null } },
    { id: "1-6", kind: "league.rank", data: { league_id: 3, rank: 2, previous_rank: 4, points: 90 } },
  ]);
  expect(received[0]).toMatchObject({
    path: "/api/auth/stream?event_id=5&mine=true",
    headers: { authorization: "Bearer md_1_x" },
  });
  expect(received[0]?.headers["last-event-id"]).toBeUndefined();
});

test("chat items keep the position of the stream", async () => {
  const chat = (type: string) => `event: chat\ndata: {"type":"${type}","room_id":"!r:s","event_id":"$1"}\n\n`;
  const { url, received } = await serve((response, _, number) => {
    open(response, number === 1 ? `id: 1-4\n\n${chat("removal")}` : chat("removal"));
    if (number === 1) response.end();
  });
  const events = await take(fan(url).stream({ room_id: "!r:s", chat: true }, quick), 2);
  expect(events.map(({ id, kind }) => [id, kind])).toEqual([
    ["1-4", "chat"],
    ["1-4", "chat"],
  ]);
  expect(received[0]?.path).toBe("/api/auth/stream?room_id=%21r%3As&chat=true");
  expect(received[1]?.headers["last-event-id"]).toBe("1-4");
});

test("reconnects with the last event id after a lost connection", async () => {
  const { url, received } = await serve((response, _, number) => {
    if (number === 1) {
      open(response, `${points("1-1", 1)}id: 1-7\n\n`);
      response.end();
    } else if (number === 2) {
      open(response);
      response.write(points("1-8", 2), () => response.destroy());
    } else {
      open(response, points("1-9", 3));
    }
  });
  const events = await take(fan(url).stream({}, quick), 3);
  expect(events.map(({ id }) => id)).toEqual(["1-1", "1-8", "1-9"]);
  expect(received.map(({ headers }) => headers["last-event-id"])).toEqual([undefined, "1-7", "1-8"]);
});

test("waits as long as the server asks before it reconnects", async () => {
  const times: number[] = [];
  const { url } = await serve((response, _, number) => {
    times.push(Date.now());
    open(response, `retry: 300\n\n${points(`1-${number}`, number)}`);
    response.end();
  });
  await take(fan(url).stream({}, { ...quick, longestPause: 1 }), 2);
  expect((times[1] ?? 0) - (times[0] ?? 0)).toBeGreaterThanOrEqual(290);
});

test("reconnects after a silent connection times out", async () => {
  const { url, received } = await serve((response, _, number) => {
    open(response, number === 1 ? points("1-1", 1) : points("1-2", 2));
  });
  const events = await take(fan(url).stream({}, { ...quick, silence: 0.2 }), 2);
  expect(events.map(({ id }) => id)).toEqual(["1-1", "1-2"]);
  expect(received[1]?.headers["last-event-id"]).toBe("1-1");
});

test("heartbeats keep the connection open", async () => {
  const { url, received } = await serve((response) => {
    open(response);
    let beats = 0;
    const timer = setInterval(() => {
      beats += 1;
      response.write(beats < 6 ? `id: 1-${beats}\n\n` : points("1-6", 1));
      if (beats === 6) clearInterval(timer);
    }, 100);
  });
  expect(await take(fan(url).stream({}, { ...quick, silence: 0.35 }), 1)).toHaveLength(1);
  expect(received).toHaveLength(1);
});

test("slow consumer does not cause a timeout", async () => {
  const { url, received } = await serve((response) => open(response, points("1-1", 1) + points("1-2", 2)));
  const slow = fan(url).stream({}, { ...quick, silence: 0.1 });
  await slow.next();
  await new Promise((done) => setTimeout(done, 300));
  expect((await slow.next()).value).toMatchObject({ id: "1-2" });
  await slow.return();
  expect(received).toHaveLength(1);
});

test("reconnects to a busy service after Retry-After", async () => {
  const { url, received } = await serve((response, _, number) => {
    if (number === 1) json(response, 503, { code: "overloaded", message: "…" }, { "Retry-After": "1" });
    else open(response, points("1-1", 1));
  });
  const began = performance.now();
  await take(fan(url).stream({}, quick), 1);
  expect(received).toHaveLength(2);
  expect(performance.now() - began).toBeGreaterThanOrEqual(990);
});

test("pauses grow with each failed connection", async () => {
  const { url, received } = await serve((response) => response.end());
  await take(fan(url).stream({}, { firstPause: 0.1, longestPause: 10, signal: AbortSignal.timeout(1000) }), 1);
  // Pauses of 0.1, 0.2, 0.4 and 0.8 s, each with 25% jitter.
  expect(received.length).toBeGreaterThanOrEqual(3);
  expect(received.length).toBeLessThanOrEqual(5);
});

test("pauses between connections that end immediately", async () => {
  const { url, received } = await serve((response) => {
    open(response);
    response.end();
  });
  await take(fan(url).stream({}, { firstPause: 0.2, signal: AbortSignal.timeout(1000) }), 1);
  expect(received.length).toBeGreaterThanOrEqual(3);
  expect(received.length).toBeLessThanOrEqual(8);
});

test("stops and throws after a client error", async () => {
  const { url, received } = await serve((response) => json(response, 404, { code: "not_found", message: "No room." }));
  await expect(take(fan(url).stream({ room_id: "!a:b" }, quick), 1)).rejects.toMatchObject({ status: 404 });
  expect(received).toHaveLength(1);
});

test("ended session stops the stream and clears the token", async () => {
  const { url } = await serve((response) => json(response, 401, { code: "unauthenticated", message: "…" }));
  const storage = memoryStorage("md_1_x");
  let calls = 0;
  const client = new Matchday({ baseUrl: url, storage, onLoggedOut: () => (calls += 1) });
  await expect(take(client.stream({}, quick), 1)).rejects.toMatchObject({ status: 401 });
  expect([calls, await storage.load()]).toEqual([1, null]);
});

test("signal ends the stream and its connection without an error", async () => {
  let closed: () => void;
  const gone = new Promise<void>((done) => {
    closed = done;
  });
  const { url } = await serve((response) => {
    response.on("close", () => closed());
    open(response);
  });
  const states: boolean[] = [];
  const stop = new AbortController();
  const stream = fan(url).stream(
    {},
    {
      ...quick,
      signal: stop.signal,
      onConnection: (isOpen) => {
        states.push(isOpen);
        if (isOpen) stop.abort();
      },
    },
  );
  expect(await take(stream, 1)).toEqual([]);
  await gone;
  expect(states).toEqual([true, false]);
});

test("leaving the loop closes the connection", async () => {
  let closed: () => void;
  const gone = new Promise<void>((done) => {
    closed = done;
  });
  const { url } = await serve((response) => {
    response.on("close", () => closed());
    open(response, points("1-1", 1));
  });
  await take(fan(url).stream({}, quick), 1);
  await gone;
});

function without(name: "Response" | "URLSearchParams", property: string, value: unknown) {
  const lacking = class extends (globalThis[name] as new (...from: never[]) => object) {};
  Object.defineProperty(lacking.prototype, property, { value });
  vi.stubGlobal(name, lacking);
  onTestFinished(() => void vi.unstubAllGlobals());
}

test("filters are sent where URLSearchParams has no size", async () => {
  without("URLSearchParams", "size", undefined);
  const { url, received } = await serve((response) => open(response, points("1-1", 1)));
  await take(fan(url).stream({ room_id: "!r:s", chat: true }, quick), 1);
  await take(fan(url).stream({}, quick), 1);
  expect(received.map(({ path }) => path)).toEqual(["/api/auth/stream?room_id=%21r%3As&chat=true", "/api/auth/stream"]);
});

test("runtime without streams throws instead of reconnecting", async () => {
  without("Response", "body", undefined);
  const { url, received } = await serve((response) => open(response));
  await expect(take(fan(url).stream({}, quick), 1)).rejects.toMatchObject({ code: "cannot_stream", status: 0 });
  expect(received).toHaveLength(0);
});

test("fetch whose responses have no body throws instead of reconnecting", async () => {
  let calls = 0;
  const fetch = async () => {
    calls += 1;
    return new Response(null);
  };
  const matchday = new Matchday({ baseUrl: "http://127.0.0.1:1", fetch });
  await expect(take(matchday.stream({}, quick), 1)).rejects.toMatchObject({ code: "cannot_stream" });
  expect(calls).toBe(1);
});

test("silent connection times out if fetch ignores the signal", async () => {
  const { url, received } = await serve((response, _, number) => {
    open(response, number === 1 ? points("1-1", 1) : points("1-2", 2));
  });
  const fetch = (to: string, { signal: _, ...init }: RequestInit) => globalThis.fetch(to, init);
  const events = await take(new Matchday({ baseUrl: url, fetch }).stream({}, { ...quick, silence: 0.2 }), 2);
  expect(events.map(({ id }) => id)).toEqual(["1-1", "1-2"]);
  expect(received[1]?.headers["last-event-id"]).toBe("1-1");
});
