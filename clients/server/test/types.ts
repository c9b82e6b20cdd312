// Compiled but never run: calls that the compiler must accept or reject.
import type { Fact, ServerClient } from "../src/index.js";

export async function accepted(server: ServerClient, fact: Fact) {
  const params = { path: { user: "12" } };
  const body = { amount: 25, reason: "purchase" };
  await server.post("/api/server/v1/users/{user}/coins/deduct", { params, body });
  const moved = await server.post("/api/server/v1/users/{user}/coins/deduct", { params, body, idempotencyKey: "4711" });
  await server.api.POST("/api/server/v1/users/{user}/coins/deduct", { params, body });
  const balance: number = moved.data.new_balance;
  const reference: string | null = moved.data.reference_id;
  const known: unknown = fact.data.event_id;
  return [balance, reference, known];
}

export async function rejected(server: ServerClient) {
  const params = { path: { user: "12" } };
  // @ts-expect-error: unknown path
  await server.get("/api/server/v1/nothing");
  // @ts-expect-error: a path of the user API
  await server.get("/api/auth/me");
  // @ts-expect-error: the path has no GET method
  await server.get("/api/server/v1/users/lookup");
  // @ts-expect-error: the path parameter is missing
  await server.get("/api/server/v1/users/{user}");
  // @ts-expect-error: `reason` is missing
  await server.post("/api/server/v1/users/{user}/coins/grant", { params, body: { amount: 1 } });
  // @ts-expect-error: lookup takes no key
  await server.post("/api/server/v1/users/lookup", { body: { phone: "+15550100" }, idempotencyKey: "1" });
  // @ts-expect-error: GET takes no key
  await server.get("/api/server/v1/key", { idempotencyKey: "1" });
  const event = { path: { event: 7 } };
  // @ts-expect-error: unknown status
  await server.put("/api/server/v1/events/{event}/result", { params: event, body: { status: "over" } });
  // @ts-expect-error: teams and matches are missing
  await server.importFixtures({ sport: { slug: "a", name: "A" }, tournament: { slug: "b", name: "B" } });
  // @ts-expect-error: the client has no property with the key
  return server.key;
}
