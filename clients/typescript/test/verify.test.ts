import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { MalformedProofError, verifyReceipt } from "../src/index.js";
import { changed, encodeLeaf, numbers, type Proof, sealed, vectors } from "./sealing.js";

const [first, second] = vectors.chain;
const [proof] = vectors.proofs as [Proof];
const verified = { verified: true, failures: [], flags: [] };
const checksOf = async (input: unknown, chain?: unknown) =>
  (await verifyReceipt(input, { chain })).failures.map(({ check }) => check);
const other = "11".repeat(32);

describe("test vectors", () => {
  test("leaves have the defined bytes and hashes", () => {
    for (const [at, { receipt }] of vectors.proofs.entries()) {
      const leaf = encodeLeaf(receipt);
      expect(leaf.toString("hex")).toBe(vectors.leaf_bytes[at]);
      expect(createHash("sha256").update(Buffer.of(0)).update(leaf).digest("hex")).toBe(receipt.leaf_hash);
    }
  });

  test("proofs verify, alone and with the chain", async () => {
    expect(vectors.proofs).toHaveLength(3);
    for (const proof of vectors.proofs) {
      expect(await verifyReceipt(proof)).toEqual(verified);
      expect(await verifyReceipt({ data: proof }, { chain: vectors.chain })).toEqual(verified);
      expect(await verifyReceipt(proof, { chain: { data: [second], meta: {} } })).toEqual(verified);
    }
  });

  test("every changed field is detected with the check that it breaks", async () => {
    const changes: [place: string, to: unknown, check: string][] = [
      ["receipt/prediction", "away", "leaf_hash"],
      ["receipt/confidence", 81, "leaf_hash"],
      ["receipt/revision", 2, "leaf_hash"],
      ["receipt/score_prediction", null, "leaf_hash"],
      ["receipt/score_prediction/home", 3, "leaf_hash"],
      ["receipt/score_prediction/away", 0, "leaf_hash"],
      ["receipt/advances", "home", "leaf_hash"],
      ["receipt/joker", true, "leaf_hash"],
      ["receipt/accepted_at", "2026-11-20T14:31:07.123457Z", "leaf_hash"],
      ["receipt/accepted_at", "2026-11-20T15:00:00.000000Z", "event"],
      ["receipt/pseudonym", "ff".repeat(16), "leaf_hash"],
      ["receipt/salt", "ff".repeat(16), "leaf_hash"],
      ["receipt/leaf_hash", other, "leaf_hash"],
      ["receipt/event_id", 8, "event"],
      ["leaf_index", 0, "inclusion"],
      ["inclusion_path", [], "inclusion"],
      ["inclusion_path/0", other, "inclusion"],
      ["seal/root", other, "inclusion"],
      ["seal/count", 4, "seal_hash"],
      ["seal/sealed_at", "2026-11-20T15:00:02.250001Z", "seal_hash"],
      ["seal/start_time", "2026-11-20T15:00:00.000001Z", "seal_hash"],
      ["seal/previous", other, "seal_hash"],
      ["seal/sequence", 3, "seal_hash"],
      ["seal/event_sequence", 2, "seal_hash"],
      ["seal/event_id", 8, "event"],
      ["seal/hash", other, "seal_hash"],
    ];
    for (const [place, to, check] of changes) {
      const { verified, failures } = await verifyReceipt(changed(proof, place, to));
      expect(verified, place).toBe(false);
      expect(
        failures.map(({ check }) => check),
        place,
      ).toContain(check);
      expect(
        failures.every(({ detail }) => detail.length > 0),
        place,
      ).toBe(true);
    }
  });

  test("invented score of a prediction without one is detected", async () => {
    const invented = changed(vectors.proofs[1], "receipt/score_prediction", { home: 1, away: 0 });
    expect(await checksOf(invented)).toEqual(["leaf_hash"]);
  });
});

test("forged proofs and chains are refused or flagged", async () => {
  expect(vectors.forged.length).toBeGreaterThan(5);
  for (const { name, proof, chain, failures, flags } of vectors.forged) {
    const found = await verifyReceipt(proof, { chain });
    expect(
      found.failures.map(({ check }) => check),
      name,
    ).toEqual(failures);
    expect(
      found.flags.map(({ flag }) => flag),
      name,
    ).toEqual(flags);
    expect(found.verified, name).toBe(false);
  }
});

describe("chain", () => {
  test("changes are detected", async () => {
    const firstWith = (field: string, to: unknown) => changed(first, field, to);
    expect(await checksOf(proof, [first])).toEqual(["not_in_chain"]);
    expect(await checksOf(proof, [])).toEqual(["not_in_chain"]);
    expect(await checksOf(proof, [firstWith("count", 1), second])).toEqual(["seal_hash"]);
    expect(await checksOf(proof, [second, first])).toEqual(["sequence", "previous"]);
    expect(await checksOf(proof, [second, second])).toEqual(["sequence", "previous"]);
    expect(await checksOf(proof, [firstWith("previous", other), second])).toEqual(["seal_hash", "previous"]);
    expect(await checksOf(proof, [firstWith("hash", other), second])).toEqual(["seal_hash", "previous"]);
  });

  test("another seal at the same place is named", async () => {
    const [{ seal }] = sealed(5) as [Proof];
    expect(await verifyReceipt(proof, { chain: [first, seal] })).toEqual({
      verified: false,
      failures: [{ check: "not_in_chain", detail: `the chain has another seal 2, with the hash ${seal.hash}` }],
      flags: [],
    });
  });

  test("long chain verifies", async () => {
    const chain = [...vectors.chain];
    for (let count = 1; count <= 200; count += 1)
      chain.push((sealed(1 + (count % 3), chain.at(-1), 100 + count) as [Proof])[0].seal);
    expect(await verifyReceipt(proof, { chain })).toEqual(verified);
    expect(await checksOf(proof, changed(chain, "150/root", other))).toEqual(["seal_hash"]);
    expect(await checksOf(proof, chain.toSpliced(100, 1))).toEqual(["sequence", "previous"]);
  });
});

describe("malformed input", () => {
  test("is rejected with an own error", async () => {
    const changes: [place: string, to: unknown][] = [
      ["receipt", undefined],
      ["receipt", null],
      ["receipt/salt", undefined],
      ["receipt/score_prediction", undefined],
      ["receipt/score_prediction", [2, 1]],
      ["receipt/score_prediction/home", 65_536],
      ["receipt/version", 2],
      ["receipt/confidence", 101],
      ["receipt/confidence", "80"],
      ["receipt/confidence", 79.5],
      ["receipt/prediction", "HOME"],
      ["receipt/prediction", "toString"],
      ["receipt/advances", "draw"],
      ["receipt/joker", 0],
      ["receipt/revision", 2 ** 32],
      ["receipt/event_id", 2 ** 53],
      ["receipt/accepted_at", "2026-11-20T14:31:07Z"],
      ["seal/root", undefined],
      ["seal/version", 0],
      ["seal/hash", second?.hash.toUpperCase()],
      ["seal/hash", `${second?.hash}00`],
      ["seal/count", -1],
      ["seal/count", null],
      ["leaf_index", "1"],
      ["inclusion_path", ["00"]],
      ["inclusion_path", { 0: other }],
    ];
    for (const [place, to] of changes) {
      await expect(verifyReceipt(changed(proof, place, to)), `${place}: ${to}`).rejects.toThrow(MalformedProofError);
    }
    for (const input of [undefined, null, "{}", [], {}, { data: null }, { data: [proof] }]) {
      await expect(verifyReceipt(input)).rejects.toThrow(MalformedProofError);
    }
    for (const chain of [null, {}, { data: {} }, second, [{ sequence: 1 }], [null]]) {
      await expect(verifyReceipt(proof, { chain })).rejects.toThrow(MalformedProofError);
    }
  });

  test("message names the field", async () => {
    const message = (input: unknown) => verifyReceipt(input).catch((error) => `${error}`);
    expect(await message([])).toBe("MalformedProofError: the proof is not an object");
    expect(await message(changed(proof, "seal/root", undefined))).toMatch(/the seal has no field root$/);
    expect(await message(changed(proof, "receipt/version", 2))).toMatch(/the receipt has the unknown version 2$/);
    expect(await message(changed(proof, "receipt/salt", "00"))).toMatch(
      /salt of the receipt is not 32 lower-case hexadecimal digits$/,
    );
  });

  test("fields are not read from a prototype", async () => {
    await expect(verifyReceipt(Object.create(proof))).rejects.toThrow("the proof has no field receipt");
  });
});

describe("values", () => {
  test("timestamps are read exactly", async () => {
    const hashWith = async (time: string) => {
      const { failures } = await verifyReceipt(changed(proof, "receipt/accepted_at", time));
      return /have the hash (\w{64})/.exec(failures[0]?.detail ?? "")?.[1];
    };
    const expected = (micros: bigint) => {
      const leaf = encodeLeaf(proof.receipt);
      leaf.writeBigInt64BE(micros, 54);
      return createHash("sha256").update(Buffer.of(0)).update(leaf).digest("hex");
    };
    for (const [time, micros] of [
      ["1970-01-01T00:00:00.000000Z", 0n],
      ["1969-12-31T23:59:59.999999Z", -1n],
      ["2024-02-29T00:00:00.000000Z", 1_709_164_800_000_000n],
      ["2026-11-20T14:31:07.123457Z", 1_795_185_067_123_457n],
      ["0000-03-01T00:00:00.000000Z", -62_162_035_200_000_000n],
      ["9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999n],
    ] as const) {
      expect(await hashWith(time), time).toBe(expected(micros));
    }
    for (const time of [
      "2023-02-29T00:00:00.000000Z",
      "2026-13-01T00:00:00.000000Z",
      "2026-00-01T00:00:00.000000Z",
      "2026-04-31T00:00:00.000000Z",
      "2026-11-20T24:00:00.000000Z",
      "2026-11-20T14:60:00.000000Z",
      "2026-11-20T23:59:60.000000Z",
      "2026-11-20T14:31:07.123Z",
      "2026-11-20T14:31:07.1234567Z",
      "2026-11-20T14:31:07.123456+00:00",
      "2026-11-20 14:31:07.123456Z",
      "2026-11-20T14:31:07.123456Z\n",
      "+002026-11-20T14:31:07.123456Z",
      "٢026-11-20T14:31:07.123456Z",
    ]) {
      await expect(hashWith(time), time).rejects.toThrow("is not a timestamp");
    }
  });

  test("integers up to 64 bits are written exactly", async () => {
    const most = 2n ** 64n - 1n;
    const detail = async (event: unknown) => {
      const { failures } = await verifyReceipt(changed(proof, "receipt/event_id", event));
      return failures.map(({ detail }) => detail).join();
    };
    const expected = (event: bigint) => {
      const leaf = encodeLeaf(proof.receipt);
      leaf.writeBigUInt64BE(event, 33);
      return createHash("sha256").update(Buffer.of(0)).update(leaf).digest("hex");
    };
    expect(await detail(Number.MAX_SAFE_INTEGER)).toContain(expected(2n ** 53n - 1n));
    expect(await detail(most)).toContain(expected(most));
    expect(await detail(most)).toContain("the receipt is for match 18446744073709551615");
    await expect(detail(most + 1n)).rejects.toThrow(MalformedProofError);
  });
});

/** Flips one bit of a hexadecimal string. */
function flipped(digits: string, bit: number): string {
  const at = Math.floor(bit / 4);
  return (
    digits.slice(0, at) + (Number.parseInt(digits[at] ?? "", 16) ^ (1 << (bit % 4))).toString(16) + digits.slice(at + 1)
  );
}

/** Flips one bit of a number, as long as it is exact. */
const flippedNumber = (number: number, bit: number) => Number(BigInt(number) ^ (1n << BigInt(bit)));

/** Flips one bit of the microseconds of a timestamp. */
function flippedTime(time: string, bit: number): string {
  const micros = BigInt(Date.parse(time)) * 1000n + BigInt(time.slice(23, 26));
  const changed = micros ^ (1n << BigInt(bit));
  const date = new Date(Number(changed / 1000n)).toISOString();
  return `${date.slice(0, 23)}${String(changed % 1000n).padStart(3, "0")}Z`;
}

/** Every change of one bit that the format can express. */
function* bitChanges(proof: Proof): Generator<[place: string, to: unknown]> {
  const { receipt, seal, inclusion_path, leaf_index } = proof;
  const bits = (count: number) => Array.from({ length: count }, (_, bit) => bit);
  for (const field of ["pseudonym", "salt"] as const)
    for (const bit of bits(128)) yield [`receipt/${field}`, flipped(receipt[field], bit)];
  for (const bit of bits(256)) yield ["receipt/leaf_hash", flipped(receipt.leaf_hash, bit)];
  for (const field of ["root", "previous", "hash"] as const)
    for (const bit of bits(256)) yield [`seal/${field}`, flipped(seal[field], bit)];
  for (const [at, hash] of inclusion_path.entries())
    for (const bit of bits(256)) yield [`inclusion_path/${at}`, flipped(hash, bit)];
  for (const bit of bits(53)) {
    yield ["leaf_index", flippedNumber(leaf_index, bit)];
    yield ["receipt/event_id", flippedNumber(receipt.event_id, bit)];
    for (const field of ["event_id", "sequence", "count"] as const)
      yield [`seal/${field}`, flippedNumber(seal[field], bit)];
  }
  for (const bit of bits(32)) {
    yield ["receipt/revision", flippedNumber(receipt.revision, bit)];
    yield ["seal/event_sequence", flippedNumber(seal.event_sequence, bit)];
  }
  // Higher bits lead to years that the format cannot express.
  for (const bit of bits(50)) {
    yield ["receipt/accepted_at", flippedTime(receipt.accepted_at, bit)];
    yield ["seal/start_time", flippedTime(seal.start_time, bit)];
    yield ["seal/sealed_at", flippedTime(seal.sealed_at, bit)];
  }
  if (receipt.score_prediction) {
    for (const bit of bits(16)) {
      yield ["receipt/score_prediction/home", flippedNumber(receipt.score_prediction.home, bit)];
      yield ["receipt/score_prediction/away", flippedNumber(receipt.score_prediction.away, bit)];
    }
  }
  for (const bit of bits(7)) {
    const to = flippedNumber(receipt.confidence, bit);
    if (to <= 100) yield ["receipt/confidence", to];
  }
  yield ["receipt/joker", !receipt.joker];
  yield ["receipt/score_prediction", receipt.score_prediction ? null : { home: 0, away: 0 }];
  for (const pick of ["home", "draw", "away"]) if (pick !== receipt.prediction) yield ["receipt/prediction", pick];
  for (const side of ["home", "away", null]) if (side !== receipt.advances) yield ["receipt/advances", side];
}

const last = 70;
const large = [127, 128, 129, 1_000, 4_095, 4_096, 5_000];

describe("trees", () => {
  test("every proof of small trees and many of large ones verify", async () => {
    for (let size = 1; size <= last; size += 1) {
      for (const proof of sealed(size)) {
        expect(await verifyReceipt(proof), `${proof.leaf_index} of ${size}`).toEqual(verified);
      }
    }
    for (const size of large) {
      const proofs = sealed(size);
      const step = Math.ceil(size / 100);
      for (const proof of proofs.filter(({ leaf_index: at }) => at % step === 0 || at === size - 1)) {
        expect(await verifyReceipt(proof), `${proof.leaf_index} of ${size}`).toEqual(verified);
      }
    }
  }, 120_000);

  test("every change of a bit is detected", async () => {
    for (const size of [1, 2, 3, 6, 13]) {
      const proofs = sealed(size);
      const proof = proofs[Math.floor(size / 2)] as Proof;
      for (const [place, to] of bitChanges(proof)) {
        expect((await verifyReceipt(changed(proof, place, to))).verified, `${size}: ${place} ${to}`).toBe(false);
      }
    }
  }, 120_000);

  test("random changes of a bit are detected in trees of every size", async () => {
    const random = numbers("changes");
    for (const size of [...Array.from({ length: last }, (_, at) => at + 1), ...large]) {
      const proofs = sealed(size);
      const proof = proofs[random(size)] as Proof;
      const changes = [...bitChanges(proof)];
      for (let count = 0; count < 20; count += 1) {
        const [place, to] = changes[random(changes.length)] as [string, unknown];
        expect((await verifyReceipt(changed(proof, place, to))).verified, `${size}: ${place} ${to}`).toBe(false);
      }
    }
  }, 120_000);

  test("proof with another length, order or index is detected", async () => {
    for (const size of [1, 2, 3, 5, 8, 33, 70]) {
      for (const proof of sealed(size)) {
        const { inclusion_path: path, leaf_index, receipt } = proof;
        const changes: [string, unknown][] = [["inclusion_path", [...path, receipt.leaf_hash]]];
        if (path.length > 0) changes.push(["inclusion_path", path.slice(1)], ["inclusion_path", path.slice(0, -1)]);
        if (path.length > 1) changes.push(["inclusion_path", path.toReversed()]);
        for (let index = 0; index <= size; index += 1) if (index !== leaf_index) changes.push(["leaf_index", index]);
        for (const [place, to] of changes) {
          const found = await checksOf(changed(proof, place, to));
          expect(found, `${leaf_index} of ${size}: ${place} ${to}`).toEqual(["inclusion"]);
        }
      }
    }
  }, 120_000);
});
