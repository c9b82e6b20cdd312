import { MatchdayError, type Schemas } from "@matchday/client";
import { counted } from "../matches/labels.ts";

type Proof = Schemas["PredictionProof"];
type Receipt = Schemas["PredictionReceipt"];
type Seal = Schemas["Seal"];
type Own = Pick<Receipt, "prediction" | "score_prediction" | "confidence" | "advances" | "joker">;

/** Result of a verification. `proof` is the response of the service, for the fan to keep. */
export type Outcome =
  | { kind: "verified"; proof: Proof }
  /** Everything matches, but the seal proves less: it is late, or the match was sealed before. */
  | { kind: "flagged"; proof: Proof; isLate: boolean; details: string[] }
  /** The seal is valid, but contains a different prediction than the page. */
  | { kind: "different"; proof: Proof }
  | { kind: "failed"; proof: unknown; details: string[] }
  /** The browser has no SHA-256, because the page is not secure. */
  | { kind: "unsupported"; proof: Proof }
  | { kind: "not_sealed" | "not_counted" };

/** Requests that a verification needs. */
export interface Sources {
  proof: () => Promise<{ data: Proof }>;
  /** Public seals with a higher sequence than `after`. */
  seals: (after: number) => Promise<{ data: Seal[] }>;
  pause: (milliseconds: number) => Promise<void>;
}

/** Lists of seals may be cached for two seconds, so a new seal can be missing that long. */
const cacheTime = 2_500;
const tries = 3;

/** Loads the proof of the fan's prediction, and verifies it against the public seals and the prediction that the fan sees. */
export async function verifyOwn(match: number, own: Own, sources: Sources): Promise<Outcome> {
  let proof: Proof;
  try {
    proof = (await sources.proof()).data;
  } catch (error) {
    if (error instanceof MatchdayError && (error.code === "not_sealed" || error.code === "not_counted")) {
      return { kind: error.code };
    }
    throw error;
  }
  if (!globalThis.crypto?.subtle) return { kind: "unsupported", proof };
  const { MalformedProofError, verifyReceipt } = await import("@matchday/client/verify");
  const failed = (details: string[]): Outcome => ({ kind: "failed", proof, details });
  try {
    const alone = await verifyReceipt(proof);
    if (alone.failures.length > 0) return failed(alone.failures.map(({ detail }) => detail));
    if (proof.receipt.event_id !== match) return failed([`the proof is for match ${proof.receipt.event_id}`]);
    const chain = await sealsAround(proof.seal.sequence, sources);
    const { verified, failures, flags } = await verifyReceipt(proof, { chain });
    if (failures.length > 0) return failed(failures.map(({ detail }) => detail));
    if (!isSame(own, proof.receipt)) return { kind: "different", proof };
    if (verified) return { kind: "verified", proof };
    const isLate = flags.some(({ flag }) => flag === "late_seal");
    return { kind: "flagged", proof, isLate, details: flags.map(({ detail }) => detail) };
  } catch (error) {
    if (error instanceof MalformedProofError) return failed([error.message]);
    throw error;
  }
}

/** Time from the start of the match to its seal, such as "2 days", if it is too long to prove what was predicted before. */
export function lateness({ start_time, sealed_at }: Pick<Seal, "start_time" | "sealed_at">): string | null {
  const minutes = Math.floor((Date.parse(sealed_at) - Date.parse(start_time)) / 60_000);
  // The same limit as in the verifiers.
  if (minutes < 5) return null;
  if (minutes < 120) return counted(minutes, "minute");
  return minutes < 48 * 60 ? counted(Math.floor(minutes / 60), "hour") : counted(Math.floor(minutes / 1_440), "day");
}

/** Loads the public seals from the one before. Waits for the seal itself if it is not among them yet. */
async function sealsAround(sequence: number, { seals, pause }: Sources): Promise<Seal[]> {
  for (let count = 1; ; count += 1) {
    const { data } = await seals(Math.max(0, sequence - 2));
    if (count === tries || data.some((seal) => seal.sequence === sequence)) return data;
    await pause(cacheTime);
  }
}

function isSame(own: Own, receipt: Receipt): boolean {
  return (
    own.prediction === receipt.prediction &&
    own.score_prediction?.home === receipt.score_prediction?.home &&
    own.score_prediction?.away === receipt.score_prediction?.away &&
    own.confidence === receipt.confidence &&
    own.advances === receipt.advances &&
    own.joker === receipt.joker
  );
}
