import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import { json, serve } from "../../typescript/test/server.js";
import { createServerClient, MatchdayError } from "../src/index.js";

const key = `mk_test_7_${"Ab3d".padEnd(43, "x")}_0AbCd9`;
const quick = { firstPause: 0.01, longestPause: 2 };
const busy = { code: "overloaded", message: "The server is overloaded." };
const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

const backend = (baseUrl: string, retry = {}, timeout = 30) =>
  createServerClient({ baseUrl, key, timeout, retry: { ...quick, ...retry } });
const purchase = (idempotencyKey?: string) => ({
  params: { path: { user: "12" } },
  body: { amount: 25, reason: "purchase", reference_id: "order-4711" },
  ...(idempotencyKey !== undefined && { idempotencyKey }),
});
const deduct = "/api/server/v1/users/{user}/coins/deduct";
const errorOf = (call: Promise<unknown>): Promise<MatchdayError> =>
  call.then(
    () => {
      throw new Error("the call succeeded");
    },
    (error) => error,
  );

describe("key", () => {
  test("is sent with every request", async () => {
    const { url, received } = await serve((response) => json(response, 200, { data: {} }));
    const client = backend(`${url}/`);
    await client.get("/api/server/v1/key");
    await client.delete("/api/server/v1/webhooks/{webhook}", { params: { path: { webhook: 3 } } });
    expect(received.map(({ method, path, headers }) => [method, path, headers.authorization])).toEqual([
      ["GET", "/api/server/v1/key", `Bearer ${key}`],
      ["DELETE", "/api/server/v1/webhooks/3", `Bearer ${key}`],
    ]);
  });

  test("does not appear in text forms of the client", () => {
    const client = backend("https://api.example.org");
    const hidden = { client, nested: [client] };
    const texts = [String(client), JSON.stringify(hidden), inspect(hidden, { depth: 9, showHidden: true })];
    texts.push(
      inspect(client.api, { depth: 9, showHidden: true }),
      inspect(client, { customInspect: false, depth: 9 }),
    );
    for (const text of texts) expect(text).not.toContain("Ab3d");
    expect(inspect(client)).toBe("ServerClient(https://api.example.org)");
  });

  test("does not appear in errors", async () => {
    const { url } = await serve((response) => json(response, 401, { code: "unauthenticated", message: "…" }));
    const refused = await errorOf(backend(url).get("/api/server/v1/key"));
    const lost = await errorOf(backend("http://127.0.0.1:1", { times: 0 }).get("/api/server/v1/key"));
    for (const error of [refused, lost]) expect(inspect(error, { depth: 9, showHidden: true })).not.toContain("Ab3d");
    expect([refused.code, lost.code]).toEqual(["unauthenticated", "no_response"]);
  });

  test.each(["", "md_1_x", `${key}\nx`, `Bearer ${key}`, `${key}ü`])("refuses %j without repeating it", (wrong) => {
    const create = () => createServerClient({ baseUrl: "https://api.example.org", key: wrong });
    expect(create).toThrow(new TypeError("key must be a server key: mk_, then letters, digits and underscores."));
  });

  test.each(["", "api.example.org", "ftp://api.example.org", "https://a:b@api.example.org"])(
    "refuses URL %j",
    (baseUrl) => {
      expect(() => createServerClient({ baseUrl, key })).toThrow(TypeError);
    },
  );
});

describe("idempotency key", () => {
  test("is a new UUID for each POST", async () => {
    const { url, received } = await serve((response) => json(response, 200, { data: {} }));
    const client = backend(url);
    await client.post(deduct, purchase());
    await client.post(deduct, purchase());
    const keys = received.map(({ headers }) => headers["idempotency-key"]);
    expect(keys).toEqual([expect.stringMatching(uuid), expect.stringMatching(uuid)]);
    expect(keys[0]).not.toBe(keys[1]);
  });

  test("is the one of the caller", async () => {
    const { url, received } = await serve((response) => json(response, 200, { data: {} }));
    const client = backend(url);
    await client.post(deduct, purchase("order-4711"));
    await client.post(deduct, { ...purchase(), headers: { "Idempotency-Key": "order-4712" } });
    const params = { path: { user: "12" }, header: { "Idempotency-Key": "order-4713" } };
    await client.api.POST(deduct, { ...purchase(), params });
    expect(received.map(({ path, headers }) => [path, headers["idempotency-key"]])).toEqual(
      ["order-4711", "order-4712", "order-4713"].map((sent) => ["/api/server/v1/users/12/coins/deduct", sent]),
    );
    expect(received[0]?.body).toBe('{"amount":25,"reason":"purchase","reference_id":"order-4711"}');
  });

  test("is not sent where the service needs none", async () => {
    const { url, received } = await serve((response) => json(response, 200, { data: { ended: 1 } }));
    const client = backend(url);
    await client.post("/api/server/v1/users/lookup", { body: { phone: "+15550100" } });
    const ending = { params: { path: { user: "ada" } }, body: { reason: "stolen phone" } };
    await client.delete("/api/server/v1/users/{user}/sessions", ending);
    expect(received.map(({ headers }) => headers["idempotency-key"])).toEqual([undefined, undefined]);
    expect(received[1]?.body).toBe('{"reason":"stolen phone"}');
  });
});

describe("retries", () => {
  test.each([
    [409, "idempotency_in_progress"],
    [429, "rate_limited"],
    [503, "overloaded"],
  ])("POST is retried after %i with the same key and body", async (status, code) => {
    const { url, received } = await serve((response, _, number) =>
      number < 3
        ? json(response, status, { code, message: "…" }, { "Retry-After": "0" })
        : json(response, 200, { data: {} }),
    );
    await backend(url).post(deduct, purchase());
    expect(received).toHaveLength(3);
    expect(new Set(received.map(({ headers, body }) => `${headers["idempotency-key"]} ${body}`))).toHaveLength(1);
  });

  test("lost connections are retried with the same key", async () => {
    const { url, received } = await serve((response, _, number) => {
      if (number === 1) return response.destroy();
      if (number === 2) {
        // The connection is lost inside the body.
        response.writeHead(200, { "Content-Type": "application/json", "Content-Length": "500" }).write('{"data":');
        return setTimeout(() => response.destroy(), 20);
      }
      return json(response, 200, { data: { new_balance: 75 } });
    });
    expect(await backend(url).post(deduct, purchase("order-4711"))).toEqual({ data: { new_balance: 75 } });
    expect(received.map(({ headers }) => headers["idempotency-key"])).toEqual(Array(3).fill("order-4711"));
  });

  test("slow response counts as a failed try", async () => {
    const { url, received } = await serve((response, _, number) => {
      if (number > 1) json(response, 200, { data: {} });
    });
    await backend(url, {}, 0.1).post(deduct, purchase("order-4711"));
    expect(received.map(({ headers }) => headers["idempotency-key"])).toEqual(["order-4711", "order-4711"]);
    const silent = await serve(() => {});
    const error = await errorOf(backend(silent.url, { times: 1 }, 0.1).get("/api/server/v1/key"));
    expect(error).toMatchObject({ status: 0, code: "no_response" });
    expect(String(error.cause)).toContain("within 0.1 seconds");
    expect(silent.received).toHaveLength(2);
  });

  test("waits at least Retry-After", async () => {
    const { url, received } = await serve((response, _, number) =>
      number === 1 ? json(response, 429, busy, { "Retry-After": "1" }) : json(response, 200, { data: {} }),
    );
    const began = performance.now();
    await backend(url).post(deduct, purchase());
    expect(performance.now() - began).toBeGreaterThanOrEqual(990);
    expect(received).toHaveLength(2);
  });

  test("PUT, DELETE and lookup are retried", async () => {
    const { url, received } = await serve((response, _, number) =>
      number % 2 === 1 ? json(response, 503, busy) : json(response, 200, { data: {} }),
    );
    const client = backend(url);
    const mute = { params: { path: { user: "ada", kind: "mute" as const } }, body: { reason: "spam" } };
    await client.put("/api/server/v1/users/{user}/restrictions/{kind}", mute);
    await client.delete("/api/server/v1/users/{user}/restrictions/{kind}", mute);
    await client.post("/api/server/v1/users/lookup", { body: { phone: "+15550100" } });
    expect(received.map(({ method }) => method)).toEqual(["PUT", "PUT", "DELETE", "DELETE", "POST", "POST"]);
  });

  test("number of tries is limited", async () => {
    const { url, received } = await serve((response) => json(response, 503, busy));
    expect((await errorOf(backend(url, { times: 2 }).post(deduct, purchase()))).code).toBe("overloaded");
    expect(received).toHaveLength(3);
  });

  test("time of the tries is limited", async () => {
    const { url, received } = await serve((response) => json(response, 503, busy, { "Retry-After": "1" }));
    const began = performance.now();
    const error = await errorOf(backend(url, { times: 100, longestTime: 1.5 }).get("/api/server/v1/key"));
    expect(error).toMatchObject({ status: 503, retryAfter: 1 });
    expect(performance.now() - began).toBeLessThan(2_900);
    expect(received).toHaveLength(2);
  });

  test("long Retry-After fails immediately", async () => {
    const { url, received } = await serve((response) => json(response, 429, busy, { "Retry-After": "3600" }));
    expect(await errorOf(backend(url).get("/api/server/v1/key"))).toMatchObject({ status: 429, retryAfter: 3600 });
    expect(received).toHaveLength(1);
  });

  test.each([400, 401, 403, 404, 409, 422, 500])("status %i is not retried", async (status) => {
    const { url, received } = await serve((response) => json(response, status, { code: "any", message: "…" }));
    expect((await errorOf(backend(url).post(deduct, purchase()))).status).toBe(status);
    expect(received).toHaveLength(1);
  });

  test("signal ends a pause and a request", async () => {
    const paused = await serve((response) => json(response, 503, busy, { "Retry-After": "2" }));
    const silent = await serve(() => {});
    const began = performance.now();
    for (const { url } of [paused, silent]) {
      const signal = AbortSignal.timeout(50);
      await expect(backend(url).get("/api/server/v1/key", { signal })).rejects.toMatchObject({ name: "TimeoutError" });
    }
    expect(performance.now() - began).toBeLessThan(1_500);
    expect([paused.received.length, silent.received.length]).toEqual([1, 1]);
  });
});

describe("errors", () => {
  test("contain all fields of the response", async () => {
    const errors = { amount: ["The amount must be a positive integer."] };
    const { url } = await serve((response) =>
      json(response, 422, { code: "validation_failed", message: "…", errors }, { "X-Request-Id": "r-1" }),
    );
    const error = await errorOf(backend(url).post(deduct, purchase()));
    expect(error).toBeInstanceOf(MatchdayError);
    expect(error).toMatchObject({ status: 422, code: "validation_failed", errors, requestId: "r-1" });
  });

  test("of a proxy contain the status", async () => {
    const { url } = await serve((response) => response.writeHead(502, { "Content-Type": "text/html" }).end("<h1>no"));
    expect(await errorOf(backend(url).get("/api/server/v1/key"))).toMatchObject({ status: 502, code: "http_502" });
  });

  test("redirect is not followed", async () => {
    const other = await serve((response) => json(response, 200, { data: {} }));
    const { url } = await serve((response) => response.writeHead(301, { Location: other.url }).end());
    expect(await errorOf(backend(url).post(deduct, purchase()))).toMatchObject({ status: 301, code: "http_301" });
    expect(other.received).toHaveLength(0);
  });
});

describe("facts", () => {
  const fact = (number: number) => ({
    id: `msg_${number}`,
    type: "scores.updated",
    timestamp: "2026-11-20T15:00:00Z",
    data: { event_id: number },
  });
  /** Serves a log of this length, with positions like `p2`. */
  const log = (length: () => number) =>
    serve((response, { path }) => {
      const query = new URL(path, "http://a.b").searchParams;
      const after = query.get("after");
      const from = after === "latest" ? length() : Number(after?.slice(1) ?? 0);
      const to = Math.min(length(), from + Number(query.get("per_page") ?? 100));
      const data = Array.from({ length: to - from }, (_, index) => fact(from + index + 1));
      json(response, 200, { data, meta: { next_after: `p${to}`, more: to < length() } });
    });

  test("follows the log page by page without a pause", async () => {
    const { url, received } = await log(() => 5);
    const pages = [];
    for await (const page of backend(url).facts(undefined, { perPage: 2, interval: 60 })) {
      pages.push(page);
      if (page.nextAfter === "p5") break;
    }
    expect(pages.map(({ facts, nextAfter }) => [facts.map(({ id }) => id), nextAfter])).toEqual([
      [["msg_1", "msg_2"], "p2"],
      [["msg_3", "msg_4"], "p4"],
      [["msg_5"], "p5"],
    ]);
    expect(received.map(({ path }) => path)).toEqual([
      "/api/server/v1/facts?per_page=2",
      "/api/server/v1/facts?after=p2&per_page=2",
      "/api/server/v1/facts?after=p4&per_page=2",
    ]);
  });

  test("polls at the end of the log", async () => {
    let length = 1;
    const { url, received } = await log(() => length);
    setTimeout(() => {
      length = 2;
    }, 250);
    const began = performance.now();
    for await (const { facts } of backend(url).facts("p1", { interval: 0.1 })) {
      expect(facts).toEqual([fact(2)]);
      break;
    }
    expect(performance.now() - began).toBeGreaterThan(240);
    expect(received.length).toBeGreaterThanOrEqual(2);
    expect(received.length).toBeLessThanOrEqual(5);
  });

  test("returns the position of latest", async () => {
    const { url, received } = await log(() => 3);
    const { value } = await backend(url).facts("latest").next();
    expect(value).toEqual({ facts: [], nextAfter: "p3" });
    expect(received[0]?.path).toBe("/api/server/v1/facts?after=latest");
  });

  test("requests the next page only when asked", async () => {
    const { url, received } = await log(() => 5);
    const pages = backend(url).facts(null, { perPage: 1 });
    await pages.next();
    await new Promise((done) => setTimeout(done, 100));
    expect(received).toHaveLength(1);
    await pages.return();
  });

  test.each(["pause", "request"])("signal ends the iteration during a %s", async (moment) => {
    const { url } = moment === "pause" ? await log(() => 1) : await serve(() => {});
    const began = performance.now();
    const pages = [];
    for await (const page of backend(url).facts(undefined, { signal: AbortSignal.timeout(100) })) pages.push(page);
    expect(pages).toHaveLength(moment === "pause" ? 1 : 0);
    expect(performance.now() - began).toBeLessThan(1_500);
  });

  test("expired position is an error", async () => {
    const { url } = await serve((response) => json(response, 410, { code: "facts_expired", message: "…" }));
    expect(await errorOf(backend(url).facts("p0").next())).toMatchObject({ status: 410, code: "facts_expired" });
  });

  test("unavailable service is retried within a page", async () => {
    const { url, received } = await serve((response, _, number) =>
      number === 1
        ? json(response, 503, busy)
        : json(response, 200, { data: [fact(1)], meta: { next_after: "p1", more: false } }),
    );
    expect((await backend(url).facts().next()).value).toMatchObject({ nextAfter: "p1" });
    expect(received).toHaveLength(2);
  });
});

describe("fixtures", () => {
  const document = {
    sport: { slug: "football", name: "Football" },
    tournament: { slug: "cup", name: "Cup" },
    teams: [],
    matches: [],
  };
  const report = { dry_run: true, tournament_id: null, events: [] };

  test("are sent with the mode and a key", async () => {
    const { url, received } = await serve((response) => json(response, 200, { message: "…", data: report }));
    const client = backend(url);
    expect(await client.importFixtures(document, { dryRun: true })).toEqual(report);
    await client.importFixtures(document, { idempotencyKey: "cup-3" });
    expect(received.map(({ method, path }) => `${method} ${path}`)).toEqual([
      "POST /api/server/v1/catalogue/import?dry_run=true",
      "POST /api/server/v1/catalogue/import?dry_run=false",
    ]);
    expect(received[0]?.headers["idempotency-key"]).toMatch(uuid);
    expect(received[1]?.headers["idempotency-key"]).toBe("cup-3");
    expect(JSON.parse(received[0]?.body ?? "")).toEqual(document);
  });

  test("faults have their places", async () => {
    const errors = { "matches[3].home": ["No team of this document has this slug."] };
    const { url } = await serve((response) => json(response, 422, { code: "validation_failed", message: "…", errors }));
    expect((await errorOf(backend(url).importFixtures(document))).errors).toEqual(errors);
  });
});
