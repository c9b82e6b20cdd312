import type { Schemas } from "@matchday/client";
import { stageName } from "../matches/labels.ts";

export interface Round {
  round: number;
  name: string;
}

type Match = Pick<Schemas["Event"], "round" | "stage">;

/** Rounds of matches in their order. A round is named after its stage if all of its matches have the same one. */
export function roundsOf(matches: Match[]): Round[] {
  const stages = new Map<number, Set<string>>();
  for (const { round, stage } of matches) {
    if (round === null) continue;
    const known = stages.get(round) ?? new Set();
    stages.set(round, known.add(stage ? stageName(stage) : ""));
  }
  return [...stages]
    .sort(([one], [other]) => one - other)
    .map(([round, names]) => {
      const [only = ""] = names;
      return { round, name: names.size === 1 && only ? `Round ${round}: ${only}` : `Round ${round}` };
    });
}
