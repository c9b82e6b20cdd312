import { describe, expect, test } from "vitest";
import { Matchday, MatchdayError, memoryStorage } from "../src/index.js";
import { json, serve } from "./server.js";

const quick = { firstPause: 0.01, longestPause: 2 };
const busy = { code: "overloaded", message: "Too much to do." };
const me = { data: { id: 1, username: "ada" } };

const fan = (baseUrl: string, retry = {}) =>
  new Matchday({ baseUrl, storage: memoryStorage("md_1_x"), retry: { ...quick, ...retry } });
const errorOf = (call: Promise<unknown>): Promise<MatchdayError> =>
  call.then(
    () => {
      throw new Error("it was answered");
    },
    (error) => error,
  );

describe("sending again", () => {
  test("a GET is sent again after 503, as late as the service asks", async () => {
    const { url, received } = await serve((response, _, number) =>
      number === 1 ? json(response, 503, busy, { "Retry-After": "1" }) : json(response, 200, me),
    );
    const began = performance.now();
    expect(await fan(url).get("/api/auth/me")).toEqual(me);
    expect(received).toHaveLength(2);
    expect(performance.now() - began).toBeGreaterThanOrEqual(990);
  });

  test("so is a PUT: the second time it changes nothing", async () => {
    const { url, received } = await serve((response, _, number) =>
      number === 1 ? json(response, 503, busy, { "Retry-After": "0" }) : json(response, 200, { data: {} }),
    );
    await fan(url).put("/api/auth/me/notifications", { body: { reminders: true } });
    expect(received.map(({ method, body }) => [method, body])).toEqual(Array(2).fill(["PUT", '{"reminders":true}']));
  });

  test("a POST with a token carries a key, and the same one when it is sent again", async () => {
    const { url, received } = await serve((response, _, number) =>
      number < 3 ? json(response, 429, busy, { "Retry-After": "0" }) : json(response, 201, { data: {} }),
    );
    await fan(url).post("/api/auth/predictions", { body: { event_id: 4, prediction: "home" } });
    const keys = received.map(({ headers }) => headers["idempotency-key"]);
    expect(keys[0]).toMatch(/^[0-9a-f]{32}$/);
    expect(new Set(keys)).toHaveLength(1);
    expect(new Set(received.map(({ body }) => body))).toEqual(new Set(['{"event_id":4,"prediction":"home"}']));
    await fan(url).post("/api/auth/daily-coins");
    expect(received.at(-1)?.headers["idempotency-key"]).not.toBe(keys[0]);
  });

  test("a key of the caller's stays", async () => {
    const { url, received } = await serve((response) => json(response, 200, { data: {} }));
    await fan(url).post("/api/auth/daily-coins", { headers: { "Idempotency-Key": "monday" } });
    expect(received[0]?.headers["idempotency-key"]).toBe("monday");
  });

  test("what might be done twice is sent once", async () => {
    const { url, received } = await serve((response) => json(response, 503, busy, { "Retry-After": "0" }));
    const stranger = new Matchday({ baseUrl: url, retry: quick });
    expect((await errorOf(stranger.requestCode("+15550100100"))).status).toBe(503);
    expect((await errorOf(fan(url).delete("/api/auth/sessions/{id}", { params: { path: { id: 1 } } }))).status).toBe(
      503,
    );
    expect(received.map(({ method }) => method)).toEqual(["POST", "DELETE"]);
    expect(received[0]?.headers["idempotency-key"]).toBeUndefined();
  });

  test("it ends after so many tries", async () => {
    const { url, received } = await serve((response) => json(response, 503, busy));
    expect(await errorOf(fan(url, { times: 2 }).get("/api/auth/me"))).toMatchObject({
      status: 503,
      code: "overloaded",
    });
    expect(received).toHaveLength(3);
  });

  test("who would have to wait too long is told at once", async () => {
    const { url, received } = await serve((response) => json(response, 429, busy, { "Retry-After": "3600" }));
    expect(await errorOf(fan(url).get("/api/auth/me"))).toMatchObject({ status: 429, retryAfter: 3600 });
    expect(received).toHaveLength(1);
  });

  test("other refusals are final", async () => {
    const { url, received } = await serve((response) => json(response, 500, { code: "internal", message: "Sorry." }));
    expect((await errorOf(fan(url).get("/api/auth/me"))).status).toBe(500);
    expect(received).toHaveLength(1);
  });

  test("the answer of a first try that is under way is waited for", async () => {
    const { url, received } = await serve((response, _, number) =>
      number === 1
        ? json(response, 409, { code: "idempotency_in_progress", message: "…" }, { "Retry-After": "0" })
        : json(response, 200, { data: {} }),
    );
    await fan(url).post("/api/auth/daily-coins");
    expect(received).toHaveLength(2);
  });

  test("a conflict that says nothing of later is final", async () => {
    const { url, received } = await serve((response) =>
      json(response, 409, { code: "already_a_member", message: "…" }),
    );
    const join = fan(url).post("/api/auth/chat-rooms/{room}/join", { params: { path: { room: "!a:b" } } });
    expect((await errorOf(join)).code).toBe("already_a_member");
    expect(received).toHaveLength(1);
  });

  test("a connection that breaks is a try like others", async () => {
    const { url, received } = await serve((response, _, number) =>
      number === 1 ? response.destroy() : json(response, 200, me),
    );
    expect(await fan(url).get("/api/auth/me")).toEqual(me);
    expect(received).toHaveLength(2);
  });

  test("nobody there is an error like others", async () => {
    const error = await errorOf(fan("http://127.0.0.1:1", { times: 0 }).get("/api/auth/me"));
    expect(error).toBeInstanceOf(MatchdayError);
    expect(error).toMatchObject({ status: 0, code: "no_answer" });
  });

  test("the signal ends a pause", async () => {
    const { url } = await serve((response) => json(response, 503, busy, { "Retry-After": "2" }));
    const began = performance.now();
    await expect(fan(url).get("/api/auth/me", { signal: AbortSignal.timeout(50) })).rejects.toThrow();
    expect(performance.now() - began).toBeLessThan(1500);
  });
});

describe("joining a busy room", () => {
  const roomBusy = { code: "room_busy", message: "The room is busy." };
  const joined = { message: "You have joined the room.", data: { room_id: "!a:b", membership: "join" } };

  test("join waits in line and gets in with one key", async () => {
    const { url, received } = await serve((response, _, number) =>
      number <= 3 ? json(response, 503, roomBusy, { "Retry-After": "1" }) : json(response, 200, joined),
    );
    const waits: unknown[] = [];
    const began = performance.now();
    // More refusals than `times` allows for other requests.
    const join = fan(url, { times: 1 }).joinRoom("!a:b", { onWaiting: (line) => waits.push(line) });
    expect(await join).toEqual(joined);
    expect(performance.now() - began).toBeGreaterThanOrEqual(2_900);
    expect(waits).toEqual([1, 2, 3].map((refusals) => ({ refusals, seconds: 1 })));
    expect(new Set(received.map(({ headers }) => headers["idempotency-key"]))).toHaveLength(1);
    expect(received.map(({ method, path }) => `${method} ${path}`)).toEqual(
      Array(4).fill("POST /api/auth/chat-rooms/!a%3Ab/join"),
    );
  }, 15_000);

  test("plain post of a join waits in line too", async () => {
    const { url, received } = await serve((response, _, number) =>
      number <= 2 ? json(response, 503, roomBusy) : json(response, 200, joined),
    );
    const post = fan(url, { times: 0 }).post("/api/auth/chat-rooms/{room}/join", {
      params: { path: { room: "!a:b" } },
    });
    expect(await post).toEqual(joined);
    expect(received).toHaveLength(3);
  });

  test("line has an end", async () => {
    const { url, received } = await serve((response) => json(response, 503, roomBusy, { "Retry-After": "1" }));
    const error = await errorOf(fan(url, { longestLine: 1.5 }).joinRoom("!a:b"));
    expect(error).toMatchObject({ status: 503, code: "room_busy", retryAfter: 1 });
    expect(received).toHaveLength(2);
  });

  test("signal leaves the line", async () => {
    const { url, received } = await serve((response) => json(response, 503, roomBusy, { "Retry-After": "60" }));
    const began = performance.now();
    await expect(fan(url).joinRoom("!a:b", { signal: AbortSignal.timeout(100) })).rejects.toThrow();
    expect(performance.now() - began).toBeLessThan(3_000);
    expect(received).toHaveLength(1);
  });

  test("unavailable chat is retried as any 503 and stays distinct", async () => {
    const { url, received } = await serve((response) =>
      json(response, 503, { code: "chat_unavailable", message: "Chat is unavailable." }),
    );
    let waits = 0;
    const error = await errorOf(fan(url).joinRoom("!a:b", { onWaiting: () => (waits += 1) }));
    expect(error.code).toBe("chat_unavailable");
    expect([received.length, waits]).toEqual([4, 0]);
  });
});

describe("errors", () => {
  test("have all that the answer has", async () => {
    const { url } = await serve((response) =>
      json(
        response,
        422,
        { code: "validation_failed", message: "The phone is none.", errors: { phone: ["The phone is none."] } },
        { "X-Request-Id": "r-1" },
      ),
    );
    expect(await errorOf(fan(url).get("/api/auth/events"))).toMatchObject({
      name: "MatchdayError",
      status: 422,
      code: "validation_failed",
      message: "The phone is none.",
      errors: { phone: ["The phone is none."] },
      requestId: "r-1",
      retryAfter: undefined,
    });
  });

  test("of a proxy in between have a status at least", async () => {
    const { url } = await serve((response) => response.writeHead(502, { "Content-Type": "text/html" }).end("<h1>no"));
    expect(await errorOf(fan(url).get("/api/auth/me"))).toMatchObject({ status: 502, code: "http_502", errors: {} });
  });
});

describe("sessions", () => {
  test("a login is kept, sent along, and ended", async () => {
    const { url, received } = await serve((response, { path }) =>
      json(response, 200, path === "/api/code/verify" ? { data: { token: "md_1_new", user: {} } } : { data: {} }),
    );
    const storage = memoryStorage();
    const stranger = new Matchday({ baseUrl: `${url}/`, storage });
    await stranger.logIn("+15550100100", "123456", { username: "ada" });
    expect(JSON.parse(received[0]?.body ?? "")).toEqual({ phone: "+15550100100", code: "123456", username: "ada" });
    expect(await storage.load()).toBe("md_1_new");
    await stranger.get("/api/auth/me");
    expect(received[1]?.headers.authorization).toBe("Bearer md_1_new");
    await stranger.logOut();
    expect(await storage.load()).toBeNull();
    await stranger.get("/api/auth/me");
    expect(received.at(-1)?.headers.authorization).toBeUndefined();
  });

  test("one that the service ended is told, once", async () => {
    const { url } = await serve((response) => json(response, 401, { code: "unauthenticated", message: "…" }));
    const storage = memoryStorage("md_1_x");
    let told = 0;
    const over = new Matchday({ baseUrl: url, storage, onLoggedOut: () => (told += 1) });
    await Promise.all([errorOf(over.get("/api/auth/me")), errorOf(over.get("/api/auth/coins"))]);
    expect([told, await storage.load()]).toEqual([1, null]);
  });

  test("suspended account is reported and keeps its token", async () => {
    const { url } = await serve((response) => json(response, 403, { code: "account_suspended", message: "…" }));
    const storage = memoryStorage("md_1_x");
    let calls = 0;
    const client = new Matchday({ baseUrl: url, storage, onSuspended: () => (calls += 1) });
    await errorOf(client.get("/api/auth/me"));
    await errorOf(client.stream().next());
    expect([calls, await storage.load()]).toEqual([2, "md_1_x"]);
  });

  test("a wrong code ends no session", async () => {
    const { url } = await serve((response) => json(response, 401, { code: "invalid_code", message: "…" }));
    const storage = memoryStorage("md_1_x");
    const client = new Matchday({ baseUrl: url, storage });
    await errorOf(client.post("/api/auth/verify-phone", { body: { phone: "+15550100100", code: "000000" } }));
    expect(await storage.load()).toBe("md_1_x");
  });

  test("the token stays here until the session is ended there, or cannot be", async () => {
    const { url } = await serve((response) => json(response, 503, busy, { "Retry-After": "60" }));
    const storage = memoryStorage("md_1_x");
    expect((await errorOf(new Matchday({ baseUrl: url, storage }).logOut())).status).toBe(503);
    expect(await storage.load()).toBeNull();
  });
});
