import { multiplierText } from "./labels.ts";

/** Badge of a match whose points count more than once. */
export function Multiplier({ multiplier }: { multiplier: number }) {
  if (multiplier === 1) return null;
  return (
    <span className="tag factor numbers">
      <span aria-hidden="true">×{multiplier}</span>
      <span className="unseen"> {multiplierText(multiplier)}</span>
    </span>
  );
}
