import type { Schemas } from "@matchday/client";
import { matchday } from "../session/session.ts";
import { useResource } from "../ui/resource.ts";
import { Loaded } from "../ui/states.tsx";

/** Chart that compares the fan's confidence with their results. */
export function Calibration() {
  const resource = useResource((signal) => matchday.get("/api/auth/me/calibration", { signal }), []);
  return (
    <section className="card" aria-labelledby="calibration">
      <header>
        <h2 id="calibration">Confidence and results</h2>
      </header>
      <Loaded resource={resource}>
        {({ data }) => {
          const bins = data.bins.filter(({ count }) => count > 0);
          if (bins.length === 0) {
            return <p className="empty">Your chart appears once matches you predicted have finished.</p>;
          }
          return (
            <>
              <Chart bins={bins} />
              <p className="small soft">
                Each dot shows your predictions at one confidence level; a larger dot means more matches. On the line,
                you were right as often as you expected. Below it, you were too confident.
              </p>
              <Numbers bins={bins} />
            </>
          );
        }}
      </Loaded>
    </section>
  );
}

type Bins = Schemas["CalibrationBin"][];
const size = { width: 400, height: 280, left: 58, right: 16, top: 20, bottom: 52 };
const x = (share: number) => size.left + share * (size.width - size.left - size.right);
const y = (share: number) => size.height - size.bottom - share * (size.height - size.top - size.bottom);
const ticks = [0, 0.25, 0.5, 0.75, 1];

function Chart({ bins }: { bins: Bins }) {
  const most = Math.max(...bins.map(({ count }) => count));
  const dots = bins.map((bin) => ({
    at: bin.from,
    sure: (bin.average_confidence ?? 0) / 100,
    right: share(bin),
    radius: 5 + 7 * Math.sqrt(bin.count / most),
  }));
  return (
    <svg
      className="calibration numbers"
      viewBox={`0 0 ${size.width} ${size.height}`}
      role="img"
      aria-label={describe(bins)}
    >
      {ticks.map((tick) => (
        <g key={tick}>
          <line className="grid" x1={x(0)} x2={x(1)} y1={y(tick)} y2={y(tick)} />
          <text x={x(0) - 10} y={y(tick) + 4} textAnchor="end">
            {tick * 100}
          </text>
          <text x={x(tick)} y={y(0) + 22} textAnchor="middle">
            {tick * 100}
          </text>
        </g>
      ))}
      <path className="too-sure" d={`M${x(0)} ${y(0)}L${x(1)} ${y(1)}V${y(0)}Z`} />
      <line className="honest" x1={x(0)} y1={y(0)} x2={x(1)} y2={y(1)} />
      {dots.map(({ at, sure, right }) => (
        <line key={at} className="miss" x1={x(sure)} x2={x(sure)} y1={y(sure)} y2={y(right)} />
      ))}
      {dots.map(({ at, sure, right, radius }) => (
        <circle key={at} cx={x(sure)} cy={y(right)} r={radius} />
      ))}
      <text className="axis" x={x(0.5)} y={size.height - 6} textAnchor="middle">
        Your confidence (%)
      </text>
      <text className="axis" transform={`translate(14 ${y(0.5)}) rotate(-90)`} textAnchor="middle">
        Correct (%)
      </text>
    </svg>
  );
}

/** The values of the chart as a table, which screen readers can also read. */
function Numbers({ bins }: { bins: Bins }) {
  return (
    <details className="small">
      <summary>Show as a table</summary>
      <table className="numbers">
        <thead>
          <tr>
            <th scope="col">Confidence</th>
            <th scope="col">Matches</th>
            <th scope="col">Correct</th>
          </tr>
        </thead>
        <tbody>
          {bins.map((bin) => (
            <tr key={bin.from}>
              <th scope="row">{Math.round(bin.average_confidence ?? 0)}%</th>
              <td>{bin.count}</td>
              <td>{Math.round(share(bin) * 100)}%</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}

const share = ({ right, count }: Bins[number]) => (count ? right / count : 0);

function describe(bins: Bins): string {
  const parts = bins.map(
    (bin) => `at ${Math.round(bin.average_confidence ?? 0)}%, ${bin.right} of ${bin.count} correct`,
  );
  return `Your confidence and your results: ${parts.join("; ")}.`;
}
