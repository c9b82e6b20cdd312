import type { Schemas } from "@matchday/client";
import { said, signed } from "../matches/words.ts";
import { matchday } from "../session/session.ts";
import { useAnswer } from "../ui/answer.ts";
import { Shown } from "../ui/states.tsx";
import "./predict.css";

interface Props {
  match: Schemas["Event"];
  own: Schemas["ListedPrediction"] | undefined;
}

/** What one said of a match that has begun, and what it was worth. */
export function OwnPrediction({ match, own }: Props) {
  return (
    <section className="card" aria-labelledby="own">
      <header>
        <h2 id="own">Your prediction</h2>
        {own?.points_earned != null && <strong className="earned numbers">{signed(own.points_earned)} points</strong>}
      </header>
      {own ? (
        <>
          <p className="own-said">{said(own, match.home_team.name, match.away_team.name)}</p>
          <Why key={`${own.points_earned} ${match.status}`} id={own.id} />
        </>
      ) : (
        <p className="soft">You said nothing of this match, and it cannot be predicted any more.</p>
      )}
    </section>
  );
}

const states = {
  open: "It has no points yet.",
  void: "The match does not count: nobody earns or loses anything.",
  late: "It was said after the match had begun, and does not count.",
};

function Why({ id }: { id: number }) {
  const answer = useAnswer(
    (signal) => matchday.get("/api/auth/predictions/{id}/explanation", { params: { path: { id } }, signal }),
    [id],
  );
  return (
    <Shown answer={answer}>
      {({ data: { state, parts } }) =>
        state === "settled" ? (
          <ul className="why">
            {parts.map(({ part, points, reason }) => (
              <li key={part}>
                <span>{reason}</span>
                <span className={`tag numbers ${points > 0 ? "good" : points < 0 ? "bad" : ""}`}>{signed(points)}</span>
              </li>
            ))}
          </ul>
        ) : (
          <p className="small soft">{states[state]}</p>
        )
      }
    </Shown>
  );
}
