import type { Schemas } from "@matchday/client";
import { useEffect, useState } from "react";
import { signed } from "../matches/labels.ts";
import { matchday } from "../session/session.ts";
import type { Goals } from "./score-fields.tsx";

interface Props {
  match: number;
  pick: Schemas["Pick"] | undefined;
  goals: Goals | null;
  confidence: number;
}

/** Points that a prediction can win or lose. The service computes them with the rules of the match. */
export function Stake({ match, pick, goals, confidence }: Props) {
  const [preview, setPreview] = useState<Schemas["PointsPreview"]>();
  useEffect(() => {
    if (!pick) return;
    const stop = new AbortController();
    const query = { prediction: pick, confidence, ...goals };
    const load = () =>
      matchday
        .get("/api/auth/events/{event}/points-preview", {
          params: { path: { event: match }, query },
          signal: stop.signal,
        })
        .then(({ data }) => !stop.signal.aborted && setPreview(data))
        // Optional: the form works without it, and the next change retries.
        .catch(() => {});
    const timer = setTimeout(load, 60);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [match, pick, goals, confidence]);

  if (!pick || !preview) return <p className="stake-hint small soft">Pick an outcome to see the points at stake.</p>;
  return (
    <dl className="stake numbers" aria-live="polite">
      <div className="gain">
        <dt>If you're right</dt>
        <dd>{signed(preview.right)}</dd>
      </div>
      {preview.goal_difference != null && (
        <div className="gain">
          <dt>Goal difference</dt>
          <dd>{signed(preview.goal_difference)}</dd>
        </div>
      )}
      {preview.exact_score != null && (
        <div className="gain">
          <dt>Exact score</dt>
          <dd>{signed(preview.exact_score)}</dd>
        </div>
      )}
      <div className={preview.wrong < 0 ? "loss" : ""}>
        <dt>If you're wrong</dt>
        <dd>{signed(preview.wrong)}</dd>
      </div>
    </dl>
  );
}
