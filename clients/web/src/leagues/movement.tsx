import { counted } from "../matches/labels.ts";

/** Places that a member gained or lost by the latest round. */
export function Movement({ places }: { places: number | null }) {
  if (places === null) return null;
  if (places === 0) {
    return (
      <span className="movement soft">
        <span aria-hidden="true">–</span>
        <span className="unseen">same place</span>
      </span>
    );
  }
  const [direction, arrow] = places > 0 ? ["up", "▲"] : ["down", "▼"];
  const count = Math.abs(places);
  return (
    <span className={`movement ${direction}`}>
      <span aria-hidden="true">
        {arrow} {count}
      </span>
      <span className="unseen">
        {direction} {counted(count, "place")}
      </span>
    </span>
  );
}
