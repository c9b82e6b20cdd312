import { execFile } from "node:child_process";
import { randomInt, randomUUID } from "node:crypto";
import { promisify } from "node:util";
import { Matchday } from "@matchday/client";
import { beforeAll, describe, expect, test } from "vitest";
import { createServerClient, type Fact, type FixtureDocument, type ServerClient } from "../../src/index.js";

const baseUrl = process.env.MATCHDAY_URL ?? "";
if (!baseUrl) throw new Error("set MATCHDAY_URL to the URL of a service; clients/with-service starts one");

/** Creates a key with these scopes and returns a client with it. */
async function backend(...scopes: string[]): Promise<ServerClient> {
  // The binary refuses unknown variables.
  const { MATCHDAY_URL: _, ...env } = process.env;
  const command = ["keys", "create", "test", "--json", ...scopes.flatMap((scope) => ["--scope", scope])];
  const { stdout } = await promisify(execFile)(process.env.SERVICE_BIN ?? "matchday", command, { env });
  return createServerClient({ baseUrl, key: JSON.parse(stdout).key });
}

async function register() {
  const phone = `+1555${randomInt(1_000_000, 9_999_999)}`;
  const client = new Matchday({ baseUrl });
  await client.requestCode(phone);
  const log = await client.get("/api/logs/sms", { params: { query: { phone, status: "sent" } } });
  const { user } = await client.logIn(phone, log.data[0]?.code ?? "");
  return { client, phone, id: user.id, params: { path: { user: String(user.id) } } };
}

const coins = "/api/server/v1/users/{user}/coins";

describe("key", () => {
  test("has only its scopes", async () => {
    const server = await backend("users:read");
    const { data } = await server.get("/api/server/v1/key");
    expect(data).toMatchObject({ name: "test", scopes: ["users:read"], revoked_at: null });
    const { params } = await register();
    const refused = server.get(coins, { params });
    await expect(refused).rejects.toMatchObject({ status: 403, code: "insufficient_scope" });
    await expect(refused).rejects.toMatchObject({ requestId: expect.any(String) });
  });

  test("that is unknown is refused", async () => {
    const server = createServerClient({ baseUrl, key: `mk_test_1_${"x".repeat(43)}_000000` });
    const refused = server.get("/api/server/v1/key");
    await expect(refused).rejects.toMatchObject({ status: 401, code: "unauthenticated" });
  });
});

describe("coins", () => {
  let server: ServerClient;
  beforeAll(async () => {
    server = await backend("coins:read", "coins:write");
  });

  test("are granted, deducted and reversed", async () => {
    const { params, client } = await register();
    const balance = async () => (await server.get(coins, { params })).data.balance;
    const first = await balance();
    const grant = { params, body: { amount: 50, reason: "Welcome back" } };
    expect((await server.post(`${coins}/grant`, grant)).data).toMatchObject({ kind: "grant", new_balance: first + 50 });

    const order = `order-${randomUUID()}`;
    const purchase = { params, body: { amount: 30, reason: "purchase", reference_id: order }, idempotencyKey: order };
    const paid = await server.post(`${coins}/deduct`, purchase);
    expect(paid.data).toMatchObject({ kind: "deduction", amount: -30, reference_id: order });
    const { data, response } = await server.api.POST(`${coins}/deduct`, {
      params: { ...params, header: { "Idempotency-Key": order } },
      body: purchase.body,
    });
    expect([data, response.headers.get("Idempotency-Replayed")]).toEqual([paid, "true"]);
    expect(await balance()).toBe(first + 20);

    const { transaction_id } = paid.data;
    const back = { params, body: { transaction_id, reason: "returned" } };
    expect((await server.post(`${coins}/reverse`, back)).data).toMatchObject({ amount: 30, reverses: transaction_id });
    await expect(server.post(`${coins}/reverse`, back)).rejects.toMatchObject({
      status: 409,
      code: "already_reversed",
    });
    expect(await balance()).toBe(first + 50);
    expect((await client.get("/api/auth/coins")).data.balance).toBe(first + 50);
  });

  test("refusals have a code and fields", async () => {
    const { params } = await register();
    const tooMuch = server.post(`${coins}/deduct`, { params, body: { amount: 1_000_000, reason: "purchase" } });
    await expect(tooMuch).rejects.toMatchObject({ status: 400, code: "insufficient_balance" });
    const nothing = server.post(`${coins}/grant`, { params, body: { amount: 0, reason: "none" } });
    await expect(nothing).rejects.toMatchObject({ status: 422, errors: { amount: [expect.any(String)] } });
  });
});

describe("support", () => {
  test("finds, mutes and logs out a user", async () => {
    const server = await backend("users:read", "users:write");
    const { client, phone, id, params } = await register();
    const { data } = await server.post("/api/server/v1/users/lookup", { body: { phone } });
    expect(data).toMatchObject({ id, restrictions: [] });
    const muted = await server.put("/api/server/v1/users/{user}/restrictions/{kind}", {
      params: { path: { user: data.username, kind: "mute" } },
      body: { reason: "Spam" },
    });
    expect(muted.data.restrictions).toMatchObject([{ kind: "mute", reason: "Spam", until: null }]);
    const ended = await server.delete("/api/server/v1/users/{user}/sessions", {
      params,
      body: { reason: "Stolen phone" },
    });
    expect(ended.data).toEqual({ ended: 1 });
    await expect
      .poll(
        () =>
          client.get("/api/auth/me").then(
            () => 200,
            ({ status }) => status,
          ),
        { timeout: 2_000 },
      )
      .toBe(401);
  });
});

describe("catalogue and facts", () => {
  const cup = (slug: string): FixtureDocument => ({
    sport: { slug: "football", name: "Football" },
    tournament: { slug, name: "Provider Cup" },
    teams: [
      { slug: `${slug}_rovers`, name: "Provider Rovers" },
      { slug: `${slug}_city`, name: "Provider City" },
    ],
    matches: [
      {
        key: "final",
        home: `${slug}_rovers`,
        away: `${slug}_city`,
        start_time: new Date(Date.now() - 3_600_000).toISOString(),
        status: "scheduled",
      },
    ],
  });

  test("imported match and its result appear in the facts", async () => {
    const server = await backend("catalogue:write", "export:read");
    const start = (await server.facts("latest").next()).value;
    const document = cup(`provider_${randomInt(1_000_000)}`);

    const planned = await server.importFixtures(document, { dryRun: true });
    expect(planned).toMatchObject({ dry_run: true, matches: { new: 1 }, events: [{ key: "final", event_id: null }] });
    const imported = await server.importFixtures(document);
    expect(imported).toMatchObject({ dry_run: false, matches: { new: 1, changed: 0 } });
    const event = imported.events[0]?.event_id ?? 0;
    const saved = await server.put("/api/server/v1/events/{event}/result", {
      params: { path: { event } },
      body: { status: "finished", home_score: 2, away_score: 1 },
    });
    expect(saved.data).toMatchObject({ event_id: event, status: "finished", result_revision: 1 });

    const seen: Fact[] = [];
    const stop = AbortSignal.timeout(20_000);
    for await (const { facts } of server.facts(start?.nextAfter, { perPage: 1, signal: stop, interval: 0.2 })) {
      seen.push(...facts.filter(({ data }) => data.event_id === event));
      if (seen.some(({ type }) => type === "event.result")) break;
    }
    expect(seen.map(({ type }) => type)).toEqual(expect.arrayContaining(["event.created", "event.result"]));
    expect(new Set(seen.map(({ id }) => id)).size).toBe(seen.length);
  });

  test("registered user is a fact", async () => {
    const server = await backend("export:read");
    const start = (await server.facts("latest").next()).value;
    const { id } = await register();
    const signal = AbortSignal.timeout(20_000);
    let found: Fact | undefined;
    for await (const { facts } of server.facts(start?.nextAfter, { signal, interval: 0.2 })) {
      found = facts.find(({ type, data }) => type === "user.registered" && data.user_id === id);
      if (found) break;
    }
    expect(found?.data).toMatchObject({ user_id: id });
  });

  test("position that is malformed is refused", async () => {
    const server = await backend("export:read");
    const refused = server.facts("not a position").next();
    await expect(refused).rejects.toMatchObject({ status: 422, errors: { after: [expect.any(String)] } });
  });
});
