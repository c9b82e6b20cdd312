import type { Schemas } from "@matchday/client";
import { Name } from "../ui/name.tsx";
import { isFinal } from "./labels.ts";

type Prediction = Pick<Schemas["Prediction"], "prediction" | "score_prediction" | "confidence">;
type Teams = { home_team: { name: string }; away_team: { name: string } };

type Extras = Pick<Schemas["Prediction"], "prediction" | "advances" | "joker">;

/** A prediction as text: "Rovers 2–1, 70%". */
export function PickText({ prediction, match }: { prediction: Prediction; match: Teams }) {
  const { prediction: pick, score_prediction: score, confidence } = prediction;
  return (
    <>
      {pick === "draw" ? "Draw" : <Name>{(pick === "home" ? match.home_team : match.away_team).name}</Name>}
      {score && ` ${score.home}–${score.away}`}
      {confidence > 0 && `, ${confidence}%`}
    </>
  );
}

/** Team to advance, unless it is the predicted winner, and the joker: " · Rovers to advance · Joker". */
export function PickExtras({ prediction, match }: { prediction: Extras; match: Schemas["Event"] }) {
  const { prediction: pick, advances, joker } = prediction;
  return (
    <>
      {advances && advances !== pick && (
        <>
          {" · "}
          <ToAdvance side={advances} match={match} />
        </>
      )}
      {joker && " · Joker"}
    </>
  );
}

export function ToAdvance({ side, match }: { side: Schemas["Side"]; match: Schemas["Event"] }) {
  return (
    <>
      <Name>{(side === "home" ? match.home_team : match.away_team).name}</Name>{" "}
      {isFinal(match) ? "to win the final" : "to advance"}
    </>
  );
}
