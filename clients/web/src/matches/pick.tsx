import type { Schemas } from "@matchday/client";
import { Name } from "../ui/name.tsx";

type Prediction = Pick<Schemas["Prediction"], "prediction" | "score_prediction" | "confidence">;
type Teams = { home_team: { name: string }; away_team: { name: string } };

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
