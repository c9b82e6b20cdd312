import type { Schemas } from "@matchday/client";
import { useEffect, useState } from "react";
import { isFinal, signed } from "../matches/labels.ts";
import { matchday } from "../session/session.ts";
import { isHighScoring } from "./draft.ts";
import type { Rules } from "./rules.ts";

interface Props {
  match: Schemas["Event"];
  rules: Rules;
  pick: Schemas["Pick"] | undefined;
  score: Schemas["ScorePrediction"] | null;
  confidence: number;
  /** Whether the prediction names a team to advance. */
  hasAdvances: boolean;
  joker: boolean;
}

/** Points that a prediction can win or lose. The service computes them with the rules of the match. */
export function Stake({ match, rules, pick, score, confidence, hasAdvances, joker }: Props) {
  const [preview, setPreview] = useState<Schemas["PointsPreview"]>();
  const { home, away } = score ?? {};
  useEffect(() => {
    if (!pick) return;
    const stop = new AbortController();
    const goals = home !== undefined && away !== undefined && { home, away };
    const query = { prediction: pick, confidence, ...goals, ...(joker && { joker }) };
    const load = () =>
      matchday
        .get("/api/auth/events/{event}/points-preview", {
          params: { path: { event: match.id }, query },
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
  }, [match.id, pick, home, away, confidence, joker]);

  if (!pick || !preview) return <p className="stake-hint small soft">Pick an outcome to see the points at stake.</p>;
  const { multiplier } = preview;
  const extra = hasAdvances && Math.round((preview.advances ?? 0) * multiplier * (joker ? 2 : 1));
  const factors = [multiplier !== 1 && `×${multiplier} for this match`, joker && "×2 for your joker"].filter(Boolean);
  return (
    <div className="stake-points">
      <dl className="stake numbers" aria-live="polite">
        <Tile name="If you're right" points={preview.right} />
        <Tile name={`Margin within ${rules.ruleSet.margin?.within}`} points={preview.margin} />
        <Tile name={isHighScoring(rules.sport) ? "Exact margin" : "Goal difference"} points={preview.goal_difference} />
        <Tile name="Exact score" points={preview.exact_score} />
        {extra !== false && extra > 0 && (
          <Tile name={isFinal(match) ? "Extra: wins final" : "Extra: advances"} points={extra} />
        )}
        <Tile name="If you're wrong" points={preview.wrong} />
      </dl>
      {factors.length > 0 && <p className="small soft numbers">Includes {factors.join(" and ")}.</p>}
    </div>
  );
}

function Tile({ name, points }: { name: string; points: number | null | undefined }) {
  if (points == null) return null;
  return (
    <div className={points > 0 ? "gain" : points < 0 ? "loss" : ""}>
      <dt>{name}</dt>
      <dd>{signed(points)}</dd>
    </div>
  );
}
