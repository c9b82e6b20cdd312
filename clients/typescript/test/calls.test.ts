import { describe, expect, onTestFinished, test, vi } from "vitest";
import { Matchday, MatchdayError, memoryStorage } from "../src/index.js";
import { json, serve } from "./server.js";

const quick = { firstPause: 0.01, longestPause: 2 };
const busy = { code: "overloaded", message: "The server is overloaded." };
const me = { data: { id: 1, username: "ada" } };

const fan = (baseUrl: string, retry = {}) =>
  new Matchday({ baseUrl, storage: memoryStorage("md_1_x"), retry: { ...quick, ...retry } });
const errorOf = (call: Promise<unknown>): Promise<MatchdayError> =>
  call.then(
    () => {
      throw new Error("the call succeeded");
    },
    (error) => error,
  );

describe("retries", () => {
  test("GET is retried after 503, no earlier than Retry-After", async () => {
    const { url, received } = await serve((response, _, number) =>
      number === 1 ? json(response, 503, busy, { "Retry-After": "1" }) : json(response, 200, me),
    );
    const began = performance.now();
    expect(await fan(url).get("/api/auth/me")).toEqual(me);
    expect(received).toHaveLength(2);
    expect(performance.now() - began).toBeGreaterThanOrEqual(990);
  });

  test("PUT is retried after 503", async () => {
    const { url, received } = await serve((response, _, number) =>
      number === 1 ? json(response, 503, busy, { "Retry-After": "0" }) : json(response, 200, { data: {} }),
    );
    await fan(url).put("/api/auth/me/notifications", { body: { reminders: true } });
    expect(received.map(({ method, body }) => [method, body])).toEqual(Array(2).fill(["PUT", '{"reminders":true}']));
  });

  test("POST with a token has one idempotency key for all tries", async () => {
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

  test("keeps the caller's idempotency key", async () => {
    const { url, received } = await serve((response) => json(response, 200, { data: {} }));
    await fan(url).post("/api/auth/daily-coins", { headers: { "Idempotency-Key": "monday" } });
    expect(received[0]?.headers["idempotency-key"]).toBe("monday");
  });

  test("DELETE, PATCH and POST without a key are not retried", async () => {
    const { url, received } = await serve((response) => json(response, 503, busy, { "Retry-After": "0" }));
    const stranger = new Matchday({ baseUrl: url, retry: quick });
    expect((await errorOf(stranger.requestCode("+15550100100"))).status).toBe(503);
    expect((await errorOf(fan(url).delete("/api/auth/sessions/{id}", { params: { path: { id: 1 } } }))).status).toBe(
      503,
    );
    const rename = { params: { path: { league: 1 } }, body: { name: "Sunday league" } };
    expect((await errorOf(fan(url).patch("/api/auth/leagues/{league}", rename))).status).toBe(503);
    expect(received.map(({ method }) => method)).toEqual(["POST", "DELETE", "PATCH"]);
    expect(received[0]?.headers["idempotency-key"]).toBeUndefined();
  });

  test("stops after the maximum number of retries", async () => {
    const { url, received } = await serve((response) => json(response, 503, busy));
    expect(await errorOf(fan(url, { times: 2 }).get("/api/auth/me"))).toMatchObject({
      status: 503,
      code: "overloaded",
    });
    expect(received).toHaveLength(3);
  });

  test("fails immediately if Retry-After is too long", async () => {
    const { url, received } = await serve((response) => json(response, 429, busy, { "Retry-After": "3600" }));
    expect(await errorOf(fan(url).get("/api/auth/me"))).toMatchObject({ status: 429, retryAfter: 3600 });
    expect(received).toHaveLength(1);
  });

  test("other errors are not retried", async () => {
    const { url, received } = await serve((response) =>
      json(response, 500, { code: "internal", message: "Internal error." }),
    );
    expect((await errorOf(fan(url).get("/api/auth/me"))).status).toBe(500);
    expect(received).toHaveLength(1);
  });

  test("waits while the first try is in progress", async () => {
    const { url, received } = await serve((response, _, number) =>
      number === 1
        ? json(response, 409, { code: "idempotency_in_progress", message: "…" }, { "Retry-After": "0" })
        : json(response, 200, { data: {} }),
    );
    await fan(url).post("/api/auth/daily-coins");
    expect(received).toHaveLength(2);
  });

  test("conflict without Retry-After is not retried", async () => {
    const { url, received } = await serve((response) =>
      json(response, 409, { code: "already_a_member", message: "…" }),
    );
    const join = fan(url).post("/api/auth/chat-rooms/{room}/join", { params: { path: { room: "!a:b" } } });
    expect((await errorOf(join)).code).toBe("already_a_member");
    expect(received).toHaveLength(1);
  });

  test("lost connection is retried", async () => {
    const { url, received } = await serve((response, _, number) =>
      number === 1 ? response.destroy() : json(response, 200, me),
    );
    expect(await fan(url).get("/api/auth/me")).toEqual(me);
    expect(received).toHaveLength(2);
  });

  test("unreachable service is reported as MatchdayError", async () => {
    const error = await errorOf(fan("http://127.0.0.1:1", { times: 0 }).get("/api/auth/me"));
    expect(error).toBeInstanceOf(MatchdayError);
    expect(error).toMatchObject({ status: 0, code: "no_response" });
  });

  test("signal interrupts a pause", async () => {
    const { url } = await serve((response) => json(response, 503, busy, { "Retry-After": "2" }));
    const began = performance.now();
    await expect(fan(url).get("/api/auth/me", { signal: AbortSignal.timeout(50) })).rejects.toThrow();
    expect(performance.now() - began).toBeLessThan(1500);
  });
});

describe("joining a busy room", () => {
  const roomBusy = { code: "room_busy", message: "The room is busy." };
  const joined = { message: "You have joined the room.", data: { room_id: "!a:b", membership: "join" } };

  test("join waits in line with one idempotency key", async () => {
    const { url, received } = await serve((response, _, number) =>
      number <= 3 ? json(response, 503, roomBusy, { "Retry-After": "1" }) : json(response, 200, joined),
    );
    const waits: unknown[] = [];
    const began = performance.now();
    // More refusals than the retries that `times` allows.
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

  test("join that is done before the retry is a success", async () => {
    const done = { code: "already_a_member", message: "Already a member of this room." };
    const listed = (room_id: string, event_id: number | null, stand: number | null) => ({ room_id, event_id, stand });
    const respondTo = (joined: unknown[]) =>
      serve((response, { path }, number) => {
        if (path.endsWith("/join")) {
          return number === 1 ? json(response, 503, roomBusy) : json(response, 409, done);
        }
        const query = new URL(path, "http://a.b").searchParams;
        const stands = [listed("!a:b", 8, 1), listed("!c:d", 8, 2)];
        json(response, 200, { data: query.has("joined") ? joined : query.get("event_id") === "8" ? stands : [] });
      });
    const same = await respondTo([listed("!a:b", 8, 1)]);
    expect(await fan(same.url).joinRoom("!a:b")).toEqual(joined);
    // The room was full, and the service assigned another stand of the match.
    const other = await respondTo([listed("!own:b", null, null), listed("!x:b", 7, 1), listed("!c:d", 8, 2)]);
    expect((await fan(other.url).joinRoom("!a:b")).data).toEqual({ room_id: "!c:d", membership: "join" });
  });

  test("join of a member is refused", async () => {
    const { url, received } = await serve((response) =>
      json(response, 409, { code: "already_a_member", message: "Already a member of this room." }),
    );
    expect(await errorOf(fan(url).joinRoom("!a:b"))).toMatchObject({ status: 409, code: "already_a_member" });
    expect(received).toHaveLength(1);
  });

  test("wait in line is limited", async () => {
    const { url, received } = await serve((response) => json(response, 503, roomBusy, { "Retry-After": "1" }));
    const error = await errorOf(fan(url, { longestLine: 1.5 }).joinRoom("!a:b"));
    expect(error).toMatchObject({ status: 503, code: "room_busy", retryAfter: 1 });
    expect(received).toHaveLength(2);
  });

  test("signal ends the wait in line", async () => {
    const { url, received } = await serve((response) => json(response, 503, roomBusy, { "Retry-After": "60" }));
    const began = performance.now();
    await expect(fan(url).joinRoom("!a:b", { signal: AbortSignal.timeout(100) })).rejects.toThrow();
    expect(performance.now() - began).toBeLessThan(3_000);
    expect(received).toHaveLength(1);
  });

  test("message waits in line and is sent with one key", async () => {
    const sent = { event_id: "$1", room_id: "!a:b", joined: true, sent_at: "2026-11-20T15:00:00Z" };
    const { url, received } = await serve((response, _, number) =>
      number === 1 ? json(response, 503, roomBusy) : json(response, 201, { message: "Message sent.", data: sent }),
    );
    const message = fan(url, { times: 0 }).sendMessage("!a:b", "Come on!", { key: "k-1" });
    expect(await message).toEqual(sent);
    expect(received.map(({ headers }) => headers["idempotency-key"])).toEqual(["k-1", "k-1"]);
    expect(received.map(({ method, path }) => `${method} ${path}`)).toEqual(
      Array(2).fill("POST /api/auth/chat-rooms/!a%3Ab/messages"),
    );
  });

  test("unavailable chat is retried like any 503", async () => {
    const { url, received } = await serve((response) =>
      json(response, 503, { code: "chat_unavailable", message: "Chat is unavailable." }),
    );
    let waits = 0;
    const error = await errorOf(fan(url).joinRoom("!a:b", { onWaiting: () => (waits += 1) }));
    expect(error.code).toBe("chat_unavailable");
    expect([received.length, waits]).toEqual([4, 0]);
  });
});

describe("resetting chat keys", () => {
  const key = (usage: string) => ({ user_id: "@ada:example.org", usage: [usage], keys: { "ed25519:x": "x" } });
  const keys = {
    master_key: key("master"),
    self_signing_key: key("self_signing"),
    user_signing_key: key("user_signing"),
  };

  test("sends the code and the keys, and nothing else of the upload", async () => {
    const sent = { expires_in: 300, phone: "+15550100100" };
    const { url, received } = await serve((response, _, number) =>
      json(response, 200, { data: number === 1 ? sent : { reset: true } }),
    );
    const ada = fan(url);
    expect(await ada.requestKeyReset()).toEqual(sent);
    const upload = { ...keys, auth: { type: "m.login.password", password: "secret" } };
    await ada.resetKeys("271828", upload);
    expect(received.map(({ path }) => path)).toEqual([
      "/api/auth/matrix-keys/reset/initiate",
      "/api/auth/matrix-keys/reset",
    ]);
    expect(JSON.parse(received[1]?.body ?? "")).toEqual({ code: "271828", ...keys });
  });

  test("retries with the same key while chat is unavailable", async () => {
    const { url, received } = await serve((response, _, number) =>
      number === 1
        ? json(response, 503, { code: "chat_unavailable", message: "…" }, { "Retry-After": "0" })
        : json(response, 200, { data: { reset: true } }),
    );
    await fan(url).resetKeys("271828", keys);
    expect(new Set(received.map(({ headers }) => headers["idempotency-key"]))).toHaveLength(1);
    expect(received).toHaveLength(2);
  });

  test("wrong code keeps the session", async () => {
    const { url } = await serve((response) => json(response, 401, { code: "invalid_code", message: "…" }));
    const ada = fan(url);
    expect((await errorOf(ada.resetKeys("000000", keys))).code).toBe("invalid_code");
    expect(await ada.token()).toBe("md_1_x");
  });
});

describe("errors", () => {
  test("contain all fields of the response", async () => {
    const { url } = await serve((response) =>
      json(
        response,
        422,
        {
          code: "validation_failed",
          message: "The phone is not valid.",
          errors: { phone: ["The phone is not valid."] },
        },
        { "X-Request-Id": "r-1" },
      ),
    );
    expect(await errorOf(fan(url).get("/api/auth/events"))).toMatchObject({
      name: "MatchdayError",
      status: 422,
      code: "validation_failed",
      message: "The phone is not valid.",
      errors: { phone: ["The phone is not valid."] },
      requestId: "r-1",
      retryAfter: undefined,
    });
  });

  test("of a proxy contain the status", async () => {
    const { url } = await serve((response) => response.writeHead(502, { "Content-Type": "text/html" }).end("<h1>no"));
    expect(await errorOf(fan(url).get("/api/auth/me"))).toMatchObject({ status: 502, code: "http_502", errors: {} });
  });
});

describe("sessions", () => {
  test("login stores the token and logout clears it", async () => {
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

  test("token is not sent to public endpoints", async () => {
    const { url, received } = await serve((response) => json(response, 200, { data: [] }));
    await fan(url).get("/api/seals", { params: { query: { after: 1 } } });
    await fan(url).get("/api/seals/{sequence}", { params: { path: { sequence: 2 } } });
    expect(received.map(({ path, headers }) => [path, headers.authorization])).toEqual([
      ["/api/seals?after=1", undefined],
      ["/api/seals/2", undefined],
    ]);
  });

  test("ended session is reported once", async () => {
    const { url } = await serve((response) => json(response, 401, { code: "unauthenticated", message: "…" }));
    const storage = memoryStorage("md_1_x");
    let calls = 0;
    const client = new Matchday({ baseUrl: url, storage, onLoggedOut: () => (calls += 1) });
    await Promise.all([errorOf(client.get("/api/auth/me")), errorOf(client.get("/api/auth/coins"))]);
    expect([calls, await storage.load()]).toEqual([1, null]);
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

  test("wrong code does not end the session", async () => {
    const { url } = await serve((response) => json(response, 401, { code: "invalid_code", message: "…" }));
    const storage = memoryStorage("md_1_x");
    const client = new Matchday({ baseUrl: url, storage });
    await errorOf(client.post("/api/auth/verify-phone", { body: { phone: "+15550100100", code: "000000" } }));
    expect(await storage.load()).toBe("md_1_x");
  });

  test("logout clears the token even if the request fails", async () => {
    const { url } = await serve((response) => json(response, 503, busy, { "Retry-After": "60" }));
    const storage = memoryStorage("md_1_x");
    expect((await errorOf(new Matchday({ baseUrl: url, storage }).logOut())).status).toBe(503);
    expect(await storage.load()).toBeNull();
  });
});

describe("other runtimes", () => {
  test("given fetch gets a URL and options, and serves every call", async () => {
    const { url, received } = await serve((response) => json(response, 200, { data: {} }));
    const calls: unknown[] = [];
    const fetch = (to: string, init: RequestInit) => {
      calls.push(to);
      return globalThis.fetch(to, init);
    };
    const matchday = new Matchday({ baseUrl: url, storage: memoryStorage("md_1_x"), fetch, language: "de" });
    await matchday.get("/api/auth/me");
    await matchday.post("/api/auth/daily-coins");
    await matchday.post("/api/auth/teams/other", { body: { team_ids: [1, 2] } });
    const picture = new Blob([Uint8Array.of(255, 216, 255)], { type: "image/jpeg" });
    await matchday.put("/api/auth/me/avatar", {
      body: picture as never,
      bodySerializer: (body: unknown) => body as Blob,
      headers: { "Content-Type": "image/jpeg" },
    });
    expect(calls).toEqual(received.map(({ path }) => url + path));
    expect(received.map(({ method, body }) => [method, body.length])).toEqual([
      ["GET", 0],
      ["POST", 0],
      ["POST", 18],
      ["PUT", expect.any(Number)],
    ]);
    expect(received[2]).toMatchObject({
      body: '{"team_ids":[1,2]}',
      headers: { authorization: "Bearer md_1_x", "accept-language": "de", "content-type": "application/json" },
    });
    expect(received[3]?.headers).toMatchObject({ "content-type": "image/jpeg", "content-length": "3" });
  });

  test("keys come from the option where the runtime has no crypto", async () => {
    vi.stubGlobal("crypto", undefined);
    onTestFinished(() => void vi.unstubAllGlobals());
    const { url, received } = await serve((response) => json(response, 200, { data: {} }));
    const options = { baseUrl: url, storage: memoryStorage("md_1_x"), retry: quick };
    await new Matchday({ ...options, randomKey: () => "key-1" }).post("/api/auth/daily-coins");
    expect(received.map(({ headers }) => headers["idempotency-key"])).toEqual(["key-1"]);
    await expect(new Matchday(options).post("/api/auth/daily-coins")).rejects.toThrow("set the option randomKey");
    expect(received).toHaveLength(1);
  });
});
