import type { Schemas } from "@matchday/client";
import { isFinal } from "../matches/labels.ts";
import { Crest } from "../ui/crest.tsx";
import { Name } from "../ui/name.tsx";

interface Props {
  match: Schemas["Event"];
  value: Schemas["Side"] | null;
  choose: (side: Schemas["Side"] | null) => void;
}

/** Optional choice of the team that advances. It may differ from the winner: a draw is decided on penalties, for example. */
export function Advances({ match, value, choose }: Props) {
  const sides = [
    { side: "home", team: match.home_team },
    { side: "away", team: match.away_team },
  ] as const;
  return (
    <fieldset className="advances">
      <legend>
        {isFinal(match) ? "Who wins the final?" : "Who advances?"}
        <span className="small soft"> – optional</span>
      </legend>
      {sides.map(({ side, team }) => (
        <label key={side} className="pick">
          <input type="radio" name="advances" checked={value === side} onChange={() => choose(side)} />
          <Crest team={team} size={22} />
          <Name>{team.name}</Name>
        </label>
      ))}
      {value && (
        <button type="button" className="link small" onClick={() => choose(null)}>
          Clear choice
        </button>
      )}
    </fieldset>
  );
}
