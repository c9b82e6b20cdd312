import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Schemas } from "../src/index.js";

export type Proof = Schemas["PredictionProof"];
export type Receipt = Schemas["PredictionReceipt"];
export type Seal = Schemas["Seal"];

interface Vectors {
  leaf_bytes: string[];
  proofs: Proof[];
  chain: Seal[];
  /** Proofs and chains with matching hashes, from an operator who cheats. */
  forged: { name: string; proof: Proof; chain: Seal[]; failures: string[]; flags: string[] }[];
}

/** Three proofs in one seal, and a chain of two seals. */
export const vectors: Vectors = JSON.parse(
  readFileSync(new URL("../../../crates/verify/tests/vectors.json", import.meta.url), "utf8"),
);

// Sealing as docs/seals.md defines it, written without the code of the verifier.

const sha256 = (...parts: Buffer[]) => {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest();
};

const unhex = (text: string) => Buffer.from(text, "hex");

/** Microseconds since 1970 of a timestamp with six fraction digits. */
const micros = (time: string) => BigInt(Date.parse(`${time.slice(0, 23)}Z`)) * 1000n + BigInt(time.slice(23, 26));

/** The 62 bytes of a leaf. */
export function encodeLeaf(receipt: Omit<Receipt, "leaf_hash">): Buffer {
  const leaf = Buffer.alloc(62);
  leaf.writeUInt8(receipt.version, 0);
  unhex(receipt.pseudonym).copy(leaf, 1);
  unhex(receipt.salt).copy(leaf, 17);
  leaf.writeBigUInt64BE(BigInt(receipt.event_id), 33);
  leaf.writeUInt8(["home", "draw", "away"].indexOf(receipt.prediction) + 1, 41);
  if (receipt.score_prediction) {
    leaf.writeUInt8(1, 42);
    leaf.writeUInt16BE(receipt.score_prediction.home, 43);
    leaf.writeUInt16BE(receipt.score_prediction.away, 45);
  }
  leaf.writeUInt8(receipt.confidence, 47);
  leaf.writeUInt8(["home", "away"].indexOf(receipt.advances ?? "") + 1, 48);
  leaf.writeUInt8(receipt.joker ? 1 : 0, 49);
  leaf.writeUInt32BE(receipt.revision, 50);
  leaf.writeBigInt64BE(micros(receipt.accepted_at), 54);
  return leaf;
}

/** Hash of a seal, from its other fields. */
export function hashSeal(seal: Omit<Seal, "hash" | "timestamp_token">): string {
  const numbers = Buffer.alloc(30);
  numbers.writeUInt8(2, 0);
  numbers.writeUInt8(seal.version, 1);
  numbers.writeBigUInt64BE(BigInt(seal.sequence), 2);
  numbers.writeBigUInt64BE(BigInt(seal.event_id), 10);
  numbers.writeUInt32BE(seal.event_sequence, 18);
  numbers.writeBigUInt64BE(BigInt(seal.count), 22);
  const times = Buffer.alloc(16);
  times.writeBigInt64BE(micros(seal.start_time), 0);
  times.writeBigInt64BE(micros(seal.sealed_at), 8);
  return sha256(numbers, unhex(seal.root), times, unhex(seal.previous)).toString("hex");
}

/** Merkle tree of RFC 9162 over sorted leaf hashes, with the recursive definitions of sections 2.1.1 and 2.1.3.1. */
export class Tree {
  readonly #leaves: Buffer[];
  readonly #roots = new Map<string, Buffer>();

  constructor(leaves: string[]) {
    this.#leaves = leaves.map(unhex);
  }

  root(from = 0, until = this.#leaves.length): Buffer {
    if (until === from) return sha256();
    const key = `${from} ${until}`;
    let root = until - from === 1 ? this.#leaves[from] : this.#roots.get(key);
    if (!root) {
      const middle = this.#middle(from, until);
      root = sha256(Buffer.of(1), this.root(from, middle), this.root(middle, until));
      this.#roots.set(key, root);
    }
    return root;
  }

  path(index: number, from = 0, until = this.#leaves.length): string[] {
    if (until - from < 2) return [];
    const middle = this.#middle(from, until);
    const [path, sibling] =
      index < middle
        ? [this.path(index, from, middle), this.root(middle, until)]
        : [this.path(index, middle, until), this.root(from, middle)];
    return [...path, sibling.toString("hex")];
  }

  /** The left subtree has the largest power of two of leaves that is less than all. */
  #middle(from: number, until: number): number {
    return from + 2 ** Math.floor(Math.log2(until - from - 1));
  }
}

/** Reproducible pseudo-random whole numbers below `limit`. */
export function numbers(seed: string): (limit: number) => number {
  let state = sha256(Buffer.from(seed));
  return (limit) => {
    state = sha256(state);
    return state.readUIntBE(0, 6) % limit;
  };
}

/** Proofs of all predictions of a match with this many, in the order of the tree. */
export function sealed(count: number, previous = vectors.chain[0], event?: number): Proof[] {
  const random = numbers(`match with ${count} predictions`);
  const bytes = () => Array.from({ length: 16 }, () => random(256).toString(16).padStart(2, "0")).join("");
  const event_id = event ?? 1 + random(1_000_000);
  const receipts = Array.from({ length: count }, (): Receipt => {
    const receipt: Omit<Receipt, "leaf_hash"> = {
      version: 1,
      event_id,
      pseudonym: bytes(),
      salt: bytes(),
      prediction: (["home", "draw", "away"] as const)[random(3)] ?? "draw",
      score_prediction: random(3) ? { home: random(300), away: random(1000) } : null,
      confidence: random(101),
      advances: (["home", "away", null] as const)[random(3)] ?? null,
      joker: random(2) === 1,
      revision: 1 + random(2 ** 31),
      accepted_at: `2026-11-20T14:${10 + random(50)}:${10 + random(50)}.${String(random(1_000_000)).padStart(6, "0")}Z`,
    };
    return { ...receipt, leaf_hash: sha256(Buffer.of(0), encodeLeaf(receipt)).toString("hex") };
  });
  receipts.sort((one, other) => (one.leaf_hash < other.leaf_hash ? -1 : 1));
  const tree = new Tree(receipts.map(({ leaf_hash }) => leaf_hash));
  const open = {
    sequence: (previous?.sequence ?? 0) + 1,
    version: 1,
    event_id,
    event_sequence: 1,
    count,
    root: tree.root().toString("hex"),
    start_time: "2026-11-20T15:00:00.000000Z",
    sealed_at: "2026-11-20T15:00:02.250000Z",
    previous: previous?.hash ?? "0".repeat(64),
  };
  const seal = { ...open, hash: hashSeal(open), timestamp_token: null };
  return receipts.map((receipt, leaf_index) => ({ receipt, seal, leaf_index, inclusion_path: tree.path(leaf_index) }));
}

/** A copy of the value with another value at a place like `receipt/score_prediction/home`. */
export function changed<T>(value: T, place: string, to: unknown): T {
  const copy = structuredClone(value);
  const names = place.split("/");
  const last = names.pop() ?? "";
  // biome-ignore lint/suspicious/noExplicitAny: the place is a string
  const parent = names.reduce((part: any, name) => part[name], copy);
  if (to === undefined) delete parent[last];
  else parent[last] = to;
  return copy;
}
