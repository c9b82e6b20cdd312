import { Link } from "wouter";
import { counted, formatNumber, percentages } from "../matches/labels.ts";
import { Name } from "../ui/name.tsx";
import type { Profile } from "./person.ts";

/** Points and predictions of a user, in all and by tournament. */
export function Record({ record, isOwn }: { record: NonNullable<Profile["record"]>; isOwn: boolean }) {
  const { predictions, settled, correct, exact, points, tournaments } = record;
  const [rate = 0] = percentages([correct, settled - correct]);
  return (
    <section className="card" aria-labelledby="record">
      <header>
        <h2 id="record">Results</h2>
        <span className="small soft numbers">{counted(predictions, "prediction")}</span>
      </header>
      {settled === 0 ? (
        <p className="empty">
          {isOwn ? "Your results appear" : "Results appear"} here after the first predicted match has finished.
        </p>
      ) : (
        <dl className="figures numbers">
          <div>
            <dt>{points === 1 ? "Point" : "Points"}</dt>
            <dd>{formatNumber(points)}</dd>
          </div>
          <div>
            <dt>Correct</dt>
            <dd>
              {rate}%
              <span className="small soft">
                {formatNumber(correct)} of {formatNumber(settled)}
              </span>
            </dd>
          </div>
          <div>
            <dt>Exact</dt>
            <dd>{formatNumber(exact)}</dd>
          </div>
        </dl>
      )}
      {tournaments.length > 0 && (
        <ul className="link-list" aria-label="By tournament">
          {tournaments.map(({ tournament_id, name, points, settled, correct, exact }) => (
            <li key={tournament_id}>
              <Link href={`/table/tournament/${tournament_id}`}>
                <span className="row-text">
                  <Name>{name}</Name>
                  <span className="small soft numbers">
                    {correct}/{settled} correct · {exact} exact
                  </span>
                </span>
                <span className="row-points numbers">
                  <strong>{formatNumber(points)}</strong>
                  <span className="small soft">{points === 1 ? "point" : "points"}</span>
                </span>
              </Link>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
