import { randomInt } from "node:crypto";
import { describe, expect, test } from "vitest";
import { Matchday, MatchdayError, memoryStorage, type StreamEvent } from "../../src/index.js";

const baseUrl = process.env.MATCHDAY_URL;
if (!baseUrl) throw new Error("set MATCHDAY_URL to the URL of a service; clients/with-service starts one");

/** Logs in with the code from the SMS log, by default with a new random number. */
async function logIn(phone = `+1555${randomInt(1_000_000, 9_999_999)}`) {
  const storage = memoryStorage();
  const client = new Matchday({ baseUrl: baseUrl ?? "", storage });
  await client.requestCode(phone);
  const login = await client.logIn(phone, await lastCode(client, phone));
  return { client, storage, login, phone };
}

async function lastCode(client: Matchday, phone: string): Promise<string> {
  const log = await client.get("/api/logs/sms", { params: { query: { phone, status: "sent" } } });
  return log.data[0]?.code ?? "";
}

async function upcomingMatch(client: Matchday) {
  const { data } = await client.get("/api/auth/events", { params: { query: { status: "scheduled" } } });
  const match = data.at(-1);
  if (!match) throw new Error("the demo data has no upcoming match");
  return match;
}

async function until<Kind extends StreamEvent["kind"]>(
  stream: AsyncIterable<StreamEvent>,
  kind: Kind,
  holds: (event: Extract<StreamEvent, { kind: Kind }>) => boolean,
) {
  for await (const event of stream) {
    const wanted = event as Extract<StreamEvent, { kind: Kind }>;
    if (event.kind === kind && holds(wanted)) return wanted;
  }
  throw new Error("the stream ended");
}

describe("session", () => {
  test("starts with a code and ends with a logout", async () => {
    const { client, storage, login } = await logIn();
    expect(login.matrix_credentials?.user_id).toContain(login.user.username);
    const { data } = await client.get("/api/auth/me");
    expect(data).toMatchObject({ id: login.user.id, balance: 100 });
    const token = await storage.load();
    await client.logOut();
    expect(await storage.load()).toBeNull();
    const late = new Matchday({ baseUrl: baseUrl ?? "", storage: memoryStorage(token) });
    await expect(late.get("/api/auth/me")).rejects.toMatchObject({ status: 401, code: "unauthenticated" });
  });

  test("does not start with a wrong code", async () => {
    const client = new Matchday({ baseUrl: baseUrl ?? "" });
    const wrong = client.logIn("+15550009999", "000000");
    await expect(wrong).rejects.toMatchObject({ status: 401, code: "invalid_code" });
    await expect(wrong).rejects.toBeInstanceOf(MatchdayError);
    expect(await client.token()).toBeNull();
  });

  test("validation errors contain the field and the request id", async () => {
    const faulty = new Matchday({ baseUrl: baseUrl ?? "" }).requestCode("nonsense");
    await expect(faulty).rejects.toMatchObject({
      status: 422,
      code: "validation_failed",
      errors: { phone: [expect.any(String)] },
      requestId: expect.any(String),
    });
  });
});

describe("account", () => {
  test("data is exported, and a code deletes the account and the session", async () => {
    const { client, storage, login, phone } = await logIn();
    const { data } = await client.get("/api/auth/me/export");
    expect(data.users).toEqual([expect.objectContaining({ phone, username: login.user.username })]);

    await client.post("/api/auth/me/deletion");
    const code = await lastCode(client, phone);
    const wrong = client.deleteAccount(code === "000000" ? "000001" : "000000");
    await expect(wrong).rejects.toMatchObject({ status: 401, code: "invalid_code" });
    expect((await client.get("/api/auth/me")).data.id).toBe(login.user.id);

    const token = await storage.load();
    await client.deleteAccount(code);
    expect(await storage.load()).toBeNull();
    const late = new Matchday({ baseUrl: baseUrl ?? "", storage: memoryStorage(token) });
    await expect(late.get("/api/auth/me")).rejects.toMatchObject({ status: 401 });
  });
});

describe("idempotency key", () => {
  test("repeated claim returns the same response and pays once", async () => {
    const { client } = await logIn();
    const claim = () => client.post("/api/auth/daily-coins", { headers: { "Idempotency-Key": "today" } });
    const first = await claim();
    expect(await claim()).toEqual(first);
    expect((await client.get("/api/auth/coins")).data.balance).toBe(first.data.new_balance);
    // A call without an explicit key gets a new one.
    await expect(client.post("/api/auth/daily-coins")).rejects.toMatchObject({ status: 400, code: "already_claimed" });
  });
});

describe("live stream", () => {
  test("reports a prediction and resumes after the last event", async () => {
    const { client } = await logIn();
    const { client: other } = await logIn();
    const match = await upcomingMatch(client);
    const stop = AbortSignal.timeout(20_000);
    let opened: () => void = () => {};
    const isOpen = new Promise<void>((done) => {
      opened = done;
    });
    const received = until(
      client.stream({ event_id: match.id }, { signal: stop, onConnection: (now) => now && opened() }),
      "tally",
      ({ data }) => data.total_predictions > match.predictions_count,
    );
    await isOpen;
    await other.post("/api/auth/predictions", { body: { event_id: match.id, prediction: "draw", confidence: 40 } });
    const tally = await received;
    expect(tally.data.event_id).toBe(match.id);

    // No stream is open while this prediction is made.
    await client.post("/api/auth/predictions", { body: { event_id: match.id, prediction: "home" } });
    const next = await until(
      client.stream({ event_id: match.id }, { signal: stop, lastEventId: tally.id }),
      "tally",
      ({ data }) => data.total_predictions > tally.data.total_predictions,
    );
    expect(next.data.prediction_distribution.home).toBeGreaterThan(tally.data.prediction_distribution.home);
  });

  test("requires a session", async () => {
    const stranger = new Matchday({ baseUrl: baseUrl ?? "" });
    await expect(stranger.stream().next()).rejects.toMatchObject({ status: 401 });
  });
});
