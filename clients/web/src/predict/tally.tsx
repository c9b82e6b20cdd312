import type { Schemas } from "@matchday/client";

type Counts = Pick<Schemas["StreamTally"], "total_predictions" | "prediction_distribution" | "average_confidence">;

/** How everybody predicts a match; the stream changes it while one looks. */
export function Tally({ match, tally }: { match: Schemas["Event"]; tally: Counts }) {
  const { total_predictions: total, prediction_distribution: counts, average_confidence: sure } = tally;
  const parts = [
    { kind: "home", name: match.home_team.name, count: counts.home },
    { kind: "draw", name: "Draw", count: counts.draw },
    { kind: "away", name: match.away_team.name, count: counts.away },
  ];
  const share = (count: number) => (total ? Math.round((count / total) * 100) : 0);
  return (
    <section className="card tally" aria-labelledby="tally">
      <header>
        <h2 id="tally">How others see it</h2>
        <span className="small soft numbers" data-testid="total">
          {total} {total === 1 ? "prediction" : "predictions"}
        </span>
      </header>
      {total === 0 ? (
        <p className="soft">Nobody has said anything yet. Be the first.</p>
      ) : (
        <>
          <div className="tally-bar" aria-hidden="true">
            {parts.map(({ kind, count }) => (
              <span key={kind} className={kind} style={{ flexGrow: count }} />
            ))}
          </div>
          <ul className="tally-parts numbers">
            {parts.map(({ kind, name, count }) => (
              <li key={kind}>
                <i className={kind} aria-hidden="true" />
                <span>{name}</span>
                <strong>{share(count)} %</strong>
              </li>
            ))}
          </ul>
          <p className="small soft">On average {Math.round(sure)} % sure.</p>
        </>
      )}
    </section>
  );
}
