import { MatchdayError, type Schemas } from "@matchday/client";
import { expect, test } from "vitest";
import vectors from "../../../../crates/verify/tests/vectors.json";
import { lateness, type Sources, verifyOwn } from "./outcome.ts";

const [proof] = vectors.proofs as [Schemas["PredictionProof"]];
const chain = vectors.chain as Schemas["Seal"][];
const { event_id: match, ...own } = proof.receipt;

/** Requests that return the test vectors, except for what a test replaces. */
const sources = (other: Partial<Sources> = {}): Sources => ({
  proof: async () => ({ data: proof }),
  seals: async (after) => ({ data: chain.filter(({ sequence }) => sequence > after) }),
  pause: async () => {},
  ...other,
});
const refused = (code: string) => async () => {
  throw new MatchdayError("Refused.", { status: 409, code });
};
const changed = (change: (proof: Schemas["PredictionProof"]) => void) => {
  const copy = structuredClone(proof);
  change(copy);
  return sources({ proof: async () => ({ data: copy }) });
};

test("proof in the public seals is verified", async () => {
  const asked: number[] = [];
  const seals = (after: number) => {
    asked.push(after);
    return sources().seals(after);
  };
  expect(await verifyOwn(match, own, sources({ seals }))).toEqual({ kind: "verified", proof });
  expect(asked).toEqual([0]);
});

test("changed proof is not verified", async () => {
  const outcome = await verifyOwn(
    match,
    own,
    changed(({ receipt }) => {
      receipt.confidence = 81;
    }),
  );
  expect(outcome).toMatchObject({ kind: "failed", proof: { receipt: { confidence: 81 } } });
  expect(outcome).toHaveProperty("details", [expect.stringContaining("the fields of the receipt have the hash")]);
});

test("proof that cannot be read is not verified", async () => {
  const outcome = await verifyOwn(
    match,
    own,
    changed(({ seal }) => {
      seal.root = "";
    }),
  );
  expect(outcome).toMatchObject({ kind: "failed", details: [expect.stringContaining("root of the seal is not")] });
});

test("proof of another match is not verified", async () => {
  expect(await verifyOwn(match + 1, own, sources())).toMatchObject({
    kind: "failed",
    details: ["the proof is for match 7"],
  });
});

test("seal that is not among the public ones is not verified", async () => {
  let pauses = 0;
  const missing = sources({
    seals: async () => ({ data: chain.slice(0, 1) }),
    pause: async () => {
      pauses += 1;
    },
  });
  expect(await verifyOwn(match, own, missing)).toMatchObject({ kind: "failed", details: ["the chain has no seal 2"] });
  expect(pauses).toBe(2);
});

test("seal that a cached list lacks is verified later", async () => {
  let isCached = true;
  const late = sources({
    seals: async () => ({ data: isCached ? chain.slice(0, 1) : chain }),
    pause: async () => {
      isCached = false;
    },
  });
  expect((await verifyOwn(match, own, late)).kind).toBe("verified");
});

test("sealed prediction that differs from the shown one is named", async () => {
  for (const other of [
    { prediction: "draw" as const },
    { score_prediction: null },
    { score_prediction: { home: 2, away: 0 } },
    { confidence: 79 },
    { advances: "home" as const },
    { joker: true },
  ]) {
    expect(await verifyOwn(match, { ...own, ...other }, sources()), JSON.stringify(other)).toEqual({
      kind: "different",
      proof,
    });
  }
});

test("match without a seal and late prediction have their own outcomes", async () => {
  expect(await verifyOwn(match, own, sources({ proof: refused("not_sealed") }))).toEqual({ kind: "not_sealed" });
  expect(await verifyOwn(match, own, sources({ proof: refused("not_counted") }))).toEqual({ kind: "not_counted" });
});

test("late and repeated seals are not shown as verified", async () => {
  const kinds: Record<string, unknown> = {};
  for (const { name, proof, chain } of vectors.forged as unknown as {
    name: string;
    proof: Schemas["PredictionProof"];
    chain: Schemas["Seal"][];
  }[]) {
    const forged = sources({
      proof: async () => ({ data: proof }),
      seals: async (after) => ({ data: chain.filter(({ sequence }) => sequence > after) }),
    });
    const outcome = await verifyOwn(match, own, forged);
    kinds[name] = outcome.kind === "flagged" ? outcome.isLate : outcome.kind;
  }
  expect(kinds).toEqual({
    "sealed three hours after the start": true,
    "sealed again with another prediction": false,
    "sealed again under the number of the first seal": "failed",
    "a seal of the match is missing": "failed",
    "a later seal replaces the one of the proof": "failed",
    "dated before the seal that it follows": false,
    "accepted after the seal": "failed",
    "accepted less than a minute after the seal": false,
    "the first seal of the chain is not the first of its match": "failed",
  });
});

test("time from the start to the seal is named if it is long", () => {
  const start_time = "2026-11-17T15:00:00.000000Z";
  for (const [sealed_at, expected] of [
    ["2026-11-17T14:00:00.000000Z", null],
    ["2026-11-17T15:04:59.000000Z", null],
    ["2026-11-17T15:05:00.000000Z", "5 minutes"],
    ["2026-11-17T18:30:00.000000Z", "3 hours"],
    ["2026-11-19T15:45:00.000000Z", "2 days"],
  ] as const) {
    expect(lateness({ start_time, sealed_at }), sealed_at).toBe(expected);
  }
});

test("other errors are thrown", async () => {
  await expect(verifyOwn(match, own, sources({ proof: refused("overloaded") }))).rejects.toMatchObject({
    code: "overloaded",
  });
  await expect(verifyOwn(match, own, sources({ seals: refused("no_response") }))).rejects.toMatchObject({
    code: "no_response",
  });
});
