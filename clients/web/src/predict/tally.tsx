import type { Schemas } from "@matchday/client";
import { isOpen, percentages } from "../matches/labels.ts";
import { Name } from "../ui/name.tsx";
import { AllPredictions } from "./all-predictions.tsx";

type Counts = Pick<Schemas["StreamTally"], "total_predictions" | "prediction_distribution" | "average_confidence">;

const isPicked = ({ count }: { count: number }) => count > 0;

/** Predictions of all fans, kept up to date by the live stream. */
export function Tally({ match, tally, hasDraws }: { match: Schemas["Event"]; tally: Counts; hasDraws: boolean }) {
  const { total_predictions: total, prediction_distribution: counts, average_confidence: sure } = tally;
  const parts = [
    { kind: "home", name: match.home_team.name, count: counts.home },
    ...(hasDraws ? [{ kind: "draw", name: "Draw", count: counts.draw }] : []),
    { kind: "away", name: match.away_team.name, count: counts.away },
  ];
  const shares = percentages(parts.map(({ count }) => count));
  return (
    <section className="card tally" aria-labelledby="tally">
      <header>
        <h2 id="tally">Community picks</h2>
        <span className="small soft numbers" data-testid="total">
          {total.toLocaleString("en")} {total === 1 ? "prediction" : "predictions"}
        </span>
      </header>
      {total === 0 ? (
        <p className="soft">No predictions yet. Be the first.</p>
      ) : (
        <>
          <div className="tally-bar" aria-hidden="true">
            {parts.filter(isPicked).map(({ kind, count }) => (
              <span key={kind} className={kind} style={{ flexGrow: count }} />
            ))}
          </div>
          <ul className="tally-parts numbers">
            {parts.map(({ kind, name }, index) => (
              <li key={kind}>
                <i className={kind} aria-hidden="true" />
                <Name>{name}</Name>
                <strong>{shares[index]}%</strong>
              </li>
            ))}
          </ul>
          <p className="small soft">Average confidence: {Math.round(sure)}%</p>
          {/* While the match is open, the picks of others would influence the fan. */}
          {!isOpen(match) && <AllPredictions match={match} />}
        </>
      )}
    </section>
  );
}
