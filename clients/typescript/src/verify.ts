// A second implementation of `crates/verify`, with the same checks and the same messages. docs/seals.md defines the formats.

/** A comparison that failed. `docs/seals.md` describes the formats that the names refer to. */
export type VerificationCheck =
  | "leaf_hash"
  | "event"
  | "inclusion"
  | "seal_hash"
  | "sequence"
  | "previous"
  | "not_in_chain";

/** A circumstance under which everything can match although the operator cheated. */
export type VerificationFlag = "late_seal" | "resealed" | "clock";

export interface VerificationFailure {
  check: VerificationCheck;
  detail: string;
}

export interface Flagged {
  flag: VerificationFlag;
  detail: string;
}

export interface Verification {
  /** Whether there are neither failures nor flags. */
  verified: boolean;
  failures: VerificationFailure[];
  /** What proves less than it seems to, for example a seal that is later than the start. */
  flags: Flagged[];
}

/** The proof or the chain cannot be verified: a field is missing or mistyped, or a version is unknown. */
export class MalformedProofError extends Error {
  override readonly name = "MalformedProofError";
}

/**
 * Verifies that a prediction is in a seal: the hash of the receipt, the inclusion path and the hash of the seal. With a
 * `chain`, also verifies that its seals ascend without gaps, that each names the hash of the one before, that those of each
 * match are numbered without gaps, and that the seal of the proof is among them and is the last one of its match.
 *
 * `proof` and `chain` are responses of the service, or only their `data`. Throws `MalformedProofError` if they cannot be
 * read. Needs `crypto.subtle`, which browsers provide only in secure contexts (HTTPS or localhost).
 */
export async function verifyReceipt(proof: unknown, options: { chain?: unknown } = {}): Promise<Verification> {
  const fields = new Fields(dataOf(proof), "proof");
  const receipt = readReceipt(fields.part("receipt"));
  const seal = readSeal(fields.part("seal"));
  const index = fields.integer("leaf_index");
  const path = readHashes(fields.array("inclusion_path"));
  const chain = options.chain === undefined ? undefined : readChain(dataOf(options.chain));

  const failures: VerificationFailure[] = [];
  const flags: Flagged[] = [];
  const require: Require = (holds, check, detail) => {
    if (!holds) failures.push({ check, detail });
  };
  const flag: Flag = (flag, detail) => flags.push({ flag, detail });
  const computed = hex(await sha256(leafBytes(receipt)));
  require(computed ===
    receipt.leafHash, "leaf_hash", `the fields of the receipt have the hash ${computed}, not ${receipt.leafHash}`);
  require(receipt.event ===
    seal.event, "event", `the receipt is for match ${receipt.event}, the seal for match ${seal.event}`);
  require(receipt.acceptedAt < seal.startTime, "event", "the prediction was accepted after the start of the match");
  const afterSeal = receipt.acceptedAt - seal.sealedAt;
  require(afterSeal <= clockStep, "event", "the prediction was accepted after its match was sealed");
  if (afterSeal > 0n && afterSeal <= clockStep) {
    flag("clock", `the prediction is dated after seal ${seal.sequence}`);
  }
  const root = await rootFromPath(bytes(receipt.leafHash), index, seal.count, path);
  require(root === seal.root, "inclusion", `the inclusion path does not lead to the root of seal ${seal.sequence}`);
  await verifyHash(seal, require);
  if (chain) {
    await verifyChain(chain, require, flag);
    verifyHolds(chain, seal, require);
    verifyIsLatest(chain, seal, require);
  }
  const minutes = (seal.sealedAt - seal.startTime) / 60_000_000n;
  if (minutes >= lateAfterMinutes) {
    flag("late_seal", `match ${seal.event} was sealed ${minutes} minutes after its start`);
  }
  if (seal.eventSequence > 1n) {
    flag("resealed", `seal ${seal.sequence} is number ${seal.eventSequence} of match ${seal.event}`);
  }
  const verified = failures.length === 0 && flags.length === 0;
  return { verified, failures, flags };
}

/** Delay of a seal that is not worth a flag. Sealing takes seconds, and minutes only with millions of predictions. */
const lateAfterMinutes = 5n;

/** Microseconds by which a correction of the clock can date a prediction after its seal. Less is flagged, more is refused. */
const clockStep = 60_000_000n;

type Require = (holds: boolean, check: VerificationCheck, detail: string) => void;
type Flag = (flag: VerificationFlag, detail: string) => void;

async function verifyHash(seal: Seal, require: Require): Promise<void> {
  const computed = hex(await sha256(sealBytes(seal)));
  require(computed === seal.hash, "seal_hash", `seal ${seal.sequence} has the hash ${computed}, not ${seal.hash}`);
}

async function verifyChain(chain: Seal[], require: Require, flag: Flag): Promise<void> {
  let before: Seal | undefined;
  const isComplete = (chain[0]?.sequence ?? 0n) <= 1n;
  const numbers = new Map<bigint, bigint>();
  for (const seal of chain) {
    const { sequence, previous, event, eventSequence } = seal;
    await verifyHash(seal, require);
    if (before) {
      require(before.sequence + 1n === sequence, "sequence", `seal ${sequence} follows seal ${before.sequence}`);
      if (seal.sealedAt < before.sealedAt) {
        flag("clock", `seal ${sequence} is dated before seal ${before.sequence}`);
      }
      require(previous ===
        before.hash, "previous", `seal ${sequence} names ${previous} as the hash before it, which is ${before.hash}`);
    } else {
      // A chain may start later. The first `previous` is then taken as given.
      require(sequence > 1n ||
        /^0+$/.test(previous), "previous", `seal ${sequence} is the first one, but names another before it`);
    }
    // A gap in the chain is reported already.
    const isNext = !before || before.sequence + 1n === sequence;
    const known = numbers.get(event);
    const first = isComplete || eventSequence === 0n ? 1n : eventSequence;
    const expected = !isNext ? eventSequence : known === undefined ? first : known + 1n;
    require(eventSequence ===
      expected, "sequence", `seal ${sequence} is number ${eventSequence} of match ${event}, not ${expected}`);
    numbers.set(event, eventSequence);
    before = seal;
  }
}

function verifyIsLatest(chain: Seal[], seal: Seal, require: Require): void {
  const later = chain.find(({ event, eventSequence }) => event === seal.event && eventSequence > seal.eventSequence);
  const detail = `seal ${later?.sequence} of match ${seal.event} replaces seal ${seal.sequence}`;
  require(!later, "not_in_chain", detail);
}

function verifyHolds(chain: Seal[], seal: Seal, require: Require): void {
  const found = chain.filter(({ sequence }) => sequence === seal.sequence).at(-1);
  const detail = found
    ? `the chain has another seal ${seal.sequence}, with the hash ${found.hash}`
    : `the chain has no seal ${seal.sequence}`;
  require(found?.hash === seal.hash, "not_in_chain", detail);
}

/** Returns the root that follows from a leaf and its path (RFC 9162, section 2.1.3.2), if the path has the right length. */
async function rootFromPath(
  leaf: Uint8Array,
  index: bigint,
  size: bigint,
  path: Uint8Array[],
): Promise<string | undefined> {
  if (index >= size) return undefined;
  let [position, last, hash] = [index, size - 1n, leaf];
  for (const sibling of path) {
    if (last === 0n) return undefined;
    if (position % 2n === 1n || position === last) {
      hash = await sha256([1, ...sibling, ...hash]);
      while (position % 2n === 0n && position !== 0n) {
        position >>= 1n;
        last >>= 1n;
      }
    } else {
      hash = await sha256([1, ...hash, ...sibling]);
    }
    position >>= 1n;
    last >>= 1n;
  }
  return last === 0n ? hex(hash) : undefined;
}

interface Receipt {
  version: bigint;
  leafHash: string;
  event: bigint;
  pseudonym: string;
  salt: string;
  prediction: Pick;
  score: { home: bigint; away: bigint } | null;
  confidence: bigint;
  advances: Side | null;
  joker: boolean;
  revision: bigint;
  acceptedAt: bigint;
}

interface Seal {
  version: bigint;
  sequence: bigint;
  event: bigint;
  eventSequence: bigint;
  count: bigint;
  root: string;
  startTime: bigint;
  sealedAt: bigint;
  previous: string;
  hash: string;
}

const picks = { home: 1, draw: 2, away: 3 } as const;
const sides = { home: 1, away: 2 } as const;
type Pick = keyof typeof picks;
type Side = keyof typeof sides;

function leafBytes(receipt: Receipt): number[] {
  const { score, advances } = receipt;
  return [
    0,
    ...integer(receipt.version, 1),
    ...bytes(receipt.pseudonym),
    ...bytes(receipt.salt),
    ...integer(receipt.event, 8),
    picks[receipt.prediction],
    score ? 1 : 0,
    ...integer(score?.home ?? 0n, 2),
    ...integer(score?.away ?? 0n, 2),
    ...integer(receipt.confidence, 1),
    advances ? sides[advances] : 0,
    receipt.joker ? 1 : 0,
    ...integer(receipt.revision, 4),
    ...integer(receipt.acceptedAt, 8),
  ];
}

function sealBytes(seal: Seal): number[] {
  return [
    2,
    ...integer(seal.version, 1),
    ...integer(seal.sequence, 8),
    ...integer(seal.event, 8),
    ...integer(seal.eventSequence, 4),
    ...integer(seal.count, 8),
    ...bytes(seal.root),
    ...integer(seal.startTime, 8),
    ...integer(seal.sealedAt, 8),
    ...bytes(seal.previous),
  ];
}

/** Big-endian bytes of an integer, in two's complement. */
function integer(value: bigint, length: number): number[] {
  return Array.from({ length }, (_, at) => Number(BigInt.asUintN(8, value >> BigInt(8 * (length - 1 - at)))));
}

function bytes(digits: string): Uint8Array {
  return Uint8Array.from(digits.match(/../g) ?? [], (digit) => Number.parseInt(digit, 16));
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function sha256(data: number[]): Promise<Uint8Array> {
  if (!globalThis.crypto?.subtle) throw new Error("SHA-256 is available only in secure contexts (HTTPS or localhost).");
  return new Uint8Array(await globalThis.crypto.subtle.digest("SHA-256", Uint8Array.from(data)));
}

function readReceipt(fields: Fields): Receipt {
  return {
    version: fields.version(),
    leafHash: fields.digits("leaf_hash", 64),
    event: fields.integer("event_id"),
    pseudonym: fields.digits("pseudonym", 32),
    salt: fields.digits("salt", 32),
    prediction: fields.oneOf("prediction", picks, "home, draw or away"),
    score: fields.value("score_prediction") === null ? null : readScore(fields.part("score_prediction")),
    confidence: fields.integer("confidence", 100n),
    advances: fields.value("advances") === null ? null : fields.oneOf("advances", sides, "home, away or null"),
    joker: fields.boolean("joker"),
    revision: fields.integer("revision", 2n ** 32n - 1n),
    acceptedAt: fields.time("accepted_at"),
  };
}

function readScore(fields: Fields): { home: bigint; away: bigint } {
  return { home: fields.integer("home", 2n ** 16n - 1n), away: fields.integer("away", 2n ** 16n - 1n) };
}

function readSeal(fields: Fields): Seal {
  return {
    version: fields.version(),
    sequence: fields.integer("sequence"),
    event: fields.integer("event_id"),
    eventSequence: fields.integer("event_sequence", 2n ** 32n - 1n),
    count: fields.integer("count"),
    root: fields.digits("root", 64),
    startTime: fields.time("start_time"),
    sealedAt: fields.time("sealed_at"),
    previous: fields.digits("previous", 64),
    hash: fields.digits("hash", 64),
  };
}

function readChain(value: unknown): Seal[] {
  if (!Array.isArray(value)) throw new MalformedProofError("the chain is not an array of seals");
  return value.map((seal) => readSeal(new Fields(seal, "seal")));
}

function readHashes(values: unknown[]): Uint8Array[] {
  return values.map((value) => {
    if (!areDigits(value, 64)) throw new MalformedProofError("inclusion_path of the proof is not an array of hashes");
    return bytes(value);
  });
}

/** Returns the `data` of a whole response, or the value itself. */
function dataOf(value: unknown): unknown {
  return isObject(value) && Object.hasOwn(value, "data") ? value.data : value;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function areDigits(value: unknown, length: number): value is string {
  return typeof value === "string" && value.length === length && /^[0-9a-f]*$/.test(value);
}

/** An object that was parsed from JSON. Each method reads one field and throws if it is missing or mistyped. */
class Fields {
  readonly #object: Record<string, unknown>;
  readonly #what: string;

  constructor(value: unknown, what: string) {
    if (!isObject(value)) throw new MalformedProofError(`the ${what} is not an object`);
    this.#object = value;
    this.#what = what;
  }

  value(name: string): unknown {
    if (!Object.hasOwn(this.#object, name)) throw new MalformedProofError(`the ${this.#what} has no field ${name}`);
    return this.#object[name];
  }

  part(name: string): Fields {
    return new Fields(this.value(name), name);
  }

  array(name: string): unknown[] {
    const value = this.value(name);
    return Array.isArray(value) ? value : this.#fail(name, "an array");
  }

  boolean(name: string): boolean {
    const value = this.value(name);
    return typeof value === "boolean" ? value : this.#fail(name, "a boolean");
  }

  /** A whole number from 0. Larger numbers than `Number.MAX_SAFE_INTEGER` must be given as `bigint`, because they are not exact. */
  integer(name: string, most = 2n ** 64n - 1n): bigint {
    const value = this.value(name);
    const number = typeof value === "bigint" || Number.isSafeInteger(value) ? BigInt(value as bigint | number) : -1n;
    return number >= 0n && number <= most ? number : this.#fail(name, `an exact whole number from 0 to ${most}`);
  }

  version(): bigint {
    const version = this.integer("version");
    if (version !== 1n) throw new MalformedProofError(`the ${this.#what} has the unknown version ${version}`);
    return version;
  }

  digits(name: string, length: number): string {
    const value = this.value(name);
    return areDigits(value, length) ? value : this.#fail(name, `${length} lower-case hexadecimal digits`);
  }

  oneOf<Name extends string>(name: string, names: Record<Name, unknown>, expected: string): Name {
    const value = this.value(name);
    return typeof value === "string" && Object.hasOwn(names, value) ? (value as Name) : this.#fail(name, expected);
  }

  /** Microseconds since 1970. `Date` has only milliseconds, so the fraction is added separately. */
  time(name: string): bigint {
    const value = this.value(name);
    const expected = "a timestamp like 2026-11-20T14:31:07.123456Z";
    const [, seconds, fraction] =
      (typeof value === "string" && /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})Z$/.exec(value)) || [];
    if (seconds === undefined || fraction === undefined) return this.#fail(name, expected);
    const milliseconds = Date.parse(`${seconds}.000Z`);
    // `Date.parse` accepts 24:00:00 and, in some engines, 30 February.
    const isExact = !Number.isNaN(milliseconds) && new Date(milliseconds).toISOString() === `${seconds}.000Z`;
    return isExact ? BigInt(milliseconds) * 1000n + BigInt(fraction) : this.#fail(name, expected);
  }

  #fail(name: string, expected: string): never {
    throw new MalformedProofError(`${name} of the ${this.#what} is not ${expected}`);
  }
}
