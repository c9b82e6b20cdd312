import { counted } from "../matches/labels.ts";
import type { Profile } from "./person.ts";

/** Difference in percentage points up to which confidence and results are called equal. */
const tolerance = 5;

/** Average confidence of a user next to the share of correct predictions. */
export function ConfidenceSummary(props: { calibration: NonNullable<Profile["calibration"]>; isOwn: boolean }) {
  const { calibration, isOwn } = props;
  const { count, average_confidence, hit_rate } = calibration;
  const [sure, right] = [Math.round(average_confidence ?? 0), Math.round((hit_rate ?? 0) * 100)];
  return (
    <section className="card" aria-labelledby="confidence">
      <header>
        <h2 id="confidence">Confidence</h2>
        <span className="small soft numbers">{counted(count, "prediction")}</span>
      </header>
      <dl className="confidence-pair numbers">
        <Bar name="Average confidence" percent={sure} kind="sure" />
        <Bar name="Correct" percent={right} kind="right" />
      </dl>
      <p className="small soft">{verdict(sure - right, isOwn)}</p>
    </section>
  );
}

function Bar({ name, percent, kind }: { name: string; percent: number; kind: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {percent}%
        <span className={`confidence-bar ${kind}`} aria-hidden="true">
          <span style={{ width: `${percent}%` }} />
        </span>
      </dd>
    </div>
  );
}

function verdict(difference: number, isOwn: boolean): string {
  const who = isOwn ? "You're" : "They're";
  if (Math.abs(difference) <= tolerance) return `${who} right about as often as expected.`;
  return difference > 0 ? `${who} right less often than expected.` : `${who} right more often than expected.`;
}
