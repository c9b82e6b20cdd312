import type { Schemas } from "@matchday/client";
import { Fragment } from "react";
import { formatNumber } from "../matches/labels.ts";
import { UserLink } from "../people/user-link.tsx";
import { useMe } from "../session/session.ts";

interface Props {
  meta: Pick<Schemas["LeaderboardMeta"], "round" | "round_complete" | "winners">;
  /** Points of the winners. */
  points: number | undefined;
}

/** Winners of a complete round, or that the round is still being played. */
export function RoundState({ meta, points }: Props) {
  const { me } = useMe();
  const { round, round_complete: isComplete, winners } = meta;
  return (
    <div role="status">
      {winners.length > 0 ? (
        <p className="winners on-pitch">
          <span className="cup" aria-hidden="true">
            ★
          </span>
          <span>
            <span className="small">
              {winners.length === 1 ? "Winner" : "Winners"} of round {round}
            </span>
            <strong>
              {winners.map((user, number) => (
                <Fragment key={user.id}>
                  {number > 0 && (number === winners.length - 1 ? " and " : ", ")}
                  <UserLink user={user} />
                  {user.id === me.id && " (you)"}
                </Fragment>
              ))}
            </strong>
          </span>
          {points !== undefined && (
            <span className="numbers">
              {formatNumber(points)} {points === 1 ? "point" : "points"}
            </span>
          )}
        </p>
      ) : (
        <p className="soft">{isComplete ? "No one predicted this round." : `Round ${round} isn't finished yet.`}</p>
      )}
    </div>
  );
}
