import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { MalformedProofError, type Verification, verifyReceipt } from "../../src/index.js";
import { changed, numbers, type Proof, sealed, vectors } from "../sealing.js";

/** The command-line verifier, in the folder of the service's binary. */
const verifier = join(dirname(process.env.SERVICE_BIN ?? ""), "matchday-verify");

/** Runs `matchday-verify receipt`. Returns `"malformed"` for exit code 2. */
async function verifyByCommand(proof: unknown, chainFile?: string): Promise<Verification | "malformed"> {
  const options = ["receipt", "-", "--json", ...(chainFile ? ["--chain", chainFile] : [])];
  return new Promise((done, fail) => {
    const running = execFile(verifier, options, (error, stdout) => {
      if (error?.code === 2) done("malformed");
      else if (error && error.code !== 1 && error.code !== 3) fail(error);
      else done(JSON.parse(stdout));
    });
    running.stdin?.end(JSON.stringify(proof));
  });
}

async function verifyHere(proof: unknown, chain?: unknown): Promise<Verification | "malformed"> {
  try {
    return await verifyReceipt(proof, { chain });
  } catch (error) {
    if (error instanceof MalformedProofError) return "malformed";
    throw error;
  }
}

/** Values that a field of a proof may have, right and wrong. */
const values = [0, 1, 2, 7, 100, 101, 65_536, -1, 0.5, 2 ** 32, null, true, false, "home", "away", "draw", "", [], {}];
const texts = ["11".repeat(32), "22".repeat(16), "AB".repeat(32), "0".repeat(64)];
const times = ["2026-11-20T14:59:59.999999Z", "2026-11-20T15:00:00.000000Z", "2026-02-30T00:00:00.000000Z"];

// The binary is there after `cargo build -p matchday-verify` and after every run of the Rust tests.
test.skipIf(!existsSync(verifier))(
  "agrees with matchday-verify on valid, changed and malformed proofs",
  async () => {
    const folder = await mkdtemp(join(tmpdir(), "matchday-verify-"));
    try {
      const random = numbers("agreement");
      const pick = <T>(list: readonly T[]): T => list[random(list.length)] as T;
      const outcomes = { verified: 0, failed: 0, malformed: 0 };
      for (let round = 0; round < 300; round += 1) {
        const proofs = round < 30 ? vectors.proofs : sealed(1 + random(200));
        let proof = pick(proofs) as Proof;
        let chain: unknown = pick([undefined, [vectors.chain[0], proof.seal], [proof.seal], [vectors.chain[0]]]);
        const places = (["receipt", "seal"] as const).flatMap((part) =>
          Object.keys(proof[part]).map((key) => `${part}/${key}`),
        );
        places.push("leaf_index", "inclusion_path", "inclusion_path/0", "receipt", "seal");
        const change = <T>(value: T, place: string) =>
          changed(value, place, pick([...values, ...texts, ...times, undefined]));
        if (round % 4 > 0) proof = change(proof, pick(places));
        if (round % 8 > 5 && Array.isArray(chain))
          chain = change(chain, `0/${pick(Object.keys(vectors.chain[0] ?? {}))}`);
        const file = join(folder, `${round}.json`);
        await writeFile(file, JSON.stringify(chain ?? []));
        const here = await verifyHere(proof, chain);
        expect(here, JSON.stringify({ proof, chain })).toEqual(await verifyByCommand(proof, chain ? file : undefined));
        outcomes[here === "malformed" ? here : here.verified ? "verified" : "failed"] += 1;
      }
      // The comparison says little if an outcome is rare.
      expect(Math.min(...Object.values(outcomes)), JSON.stringify(outcomes)).toBeGreaterThan(20);
    } finally {
      await rm(folder, { recursive: true });
    }
  },
  120_000,
);
