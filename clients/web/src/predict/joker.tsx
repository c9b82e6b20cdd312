interface Props {
  /** Jokers that a fan has in a tournament. */
  count: number;
  isOn: boolean;
  set: (isOn: boolean) => void;
}

/** Switch for the joker, which doubles all points of the match. */
export function Joker({ count, isOn, set }: Props) {
  return (
    <label className="switch joker">
      <span>
        Play a joker
        <span className="small soft">
          Doubles your points, won or lost. You have {count} {count === 1 ? "joker" : "jokers"} per tournament.
        </span>
      </span>
      <input
        type="checkbox"
        role="switch"
        checked={isOn}
        aria-checked={isOn}
        onChange={(event) => set(event.target.checked)}
      />
    </label>
  );
}
