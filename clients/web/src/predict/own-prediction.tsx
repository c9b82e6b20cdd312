import type { Schemas } from "@matchday/client";
import { useEffect, useRef } from "react";
import { signed } from "../matches/labels.ts";
import { PickExtras, PickText, ToAdvance } from "../matches/pick.tsx";
import { Sealed } from "../seals/sealed.tsx";
import { matchday } from "../session/session.ts";
import { useResource } from "../ui/resource.ts";
import { Loaded } from "../ui/states.tsx";
import { useDraft } from "./drafts.ts";
import "./predict.css";

interface Props {
  match: Schemas["Event"];
  own: Schemas["ListedPrediction"] | undefined;
  /** Seal of the match; null if it has none, and undefined while it loads. */
  seal: Schemas["Seal"] | null | undefined;
}

/** The fan's prediction of a match that is closed for predictions, with its points and its seal. */
export function OwnPrediction({ match, own, seal }: Props) {
  const points = own?.points_earned;
  return (
    <section className="card" aria-labelledby="own">
      <header>
        <h2 id="own">Your prediction</h2>
        {points != null && (
          <strong className="earned numbers">
            {signed(points)} {Math.abs(points) === 1 ? "point" : "points"}
          </strong>
        )}
      </header>
      <Lost match={match} own={own} />
      {own ? (
        <>
          <p className="own-said">
            <PickText prediction={own} match={match} />
          </p>
          {(own.advances || own.joker) && (
            <ul className="own-extras">
              {own.advances && (
                <li className="tag">
                  <span>
                    <ToAdvance side={own.advances} match={match} />
                  </span>
                </li>
              )}
              {own.joker && <li className="tag factor">Joker</li>}
            </ul>
          )}
          <Explanation key={`${own.points_earned} ${match.status} ${match.advanced}`} id={own.id} />
          <Sealed match={match} own={own} seal={seal} />
        </>
      ) : (
        <p className="soft">You didn't predict this match.</p>
      )}
    </section>
  );
}

/** States in which the saved prediction counts. A match that is `scheduled` here has passed its kick-off. */
const started = ["scheduled", "live", "suspended", "finished"];

/** Message that the match started before a change was saved. */
function Lost({ match, own }: Pick<Props, "match" | "own">) {
  const { values, isChanged, discard } = useDraft(match, own);
  const notice = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!isChanged) return;
    notice.current?.scrollIntoView({ block: "nearest" });
    // The form disappeared, with the focused control.
    if (document.activeElement === document.body) notice.current?.focus({ preventScroll: true });
  }, [isChanged]);
  if (!isChanged) return null;
  const { pick } = values;
  const hasStarted = started.includes(match.status_detail);
  return (
    <div ref={notice} className="notice with-action lost" role="alert" tabIndex={-1}>
      <p>
        {hasStarted ? "Kick-off." : "Predictions for this match are closed."} {own ? "Your change" : "Your prediction"}
        {!own && pick && (
          <>
            {" "}
            <strong>
              <PickText prediction={{ ...values, prediction: pick, score_prediction: null }} match={match} />
            </strong>
          </>
        )}{" "}
        wasn't saved
        {own && hasStarted && (
          <>
            ;{" "}
            <strong>
              <PickText prediction={own} match={match} />
              <PickExtras prediction={own} match={match} />
            </strong>{" "}
            counts
          </>
        )}
        .
      </p>
      <button type="button" className="button quiet low" onClick={discard}>
        OK
      </button>
    </div>
  );
}

const states = {
  open: "Points after full time",
  void: "This match doesn't count. No points are won or lost.",
  late: "You predicted after kick-off, so this prediction doesn't count.",
};

function Explanation({ id }: { id: number }) {
  const resource = useResource(
    (signal) => matchday.get("/api/auth/predictions/{id}/explanation", { params: { path: { id } }, signal }),
    [id],
  );
  return (
    <Loaded resource={resource}>
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
    </Loaded>
  );
}
