import { MatchdayError, type Schemas } from "@matchday/client";

type Proof = Schemas["PredictionProof"];
type Receipt = Schemas["PredictionReceipt"];
type Seal = Schemas["Seal"];
type Own = Pick<Receipt, "prediction" | "score_prediction" | "confidence" | "advances" | "joker">;

/** Result of a verification. `proof` is the response of the service, for the fan to keep. */
export type Outcome =
  | { kind: "verified"; proof: Proof }
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
    if (!alone.verified) return failed(alone.failures.map(({ detail }) => detail));
    if (proof.receipt.event_id !== match) return failed([`the proof is for match ${proof.receipt.event_id}`]);
    const chain = await sealsAround(proof.seal.sequence, sources);
    const { verified, failures } = await verifyReceipt(proof, { chain });
    if (!verified) return failed(failures.map(({ detail }) => detail));
  } catch (error) {
    if (error instanceof MalformedProofError) return failed([error.message]);
    throw error;
  }
  return { kind: isSame(own, proof.receipt) ? "verified" : "different", proof };
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
