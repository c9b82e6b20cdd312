import type { Schemas } from "@matchday/client";
import { Switch } from "../ui/switch.tsx";

type Kinds = Schemas["Notifications"]["kinds"];
/** A kind that is sent to devices, or the summary of a round, which is a setting of its own. */
export type Kind = keyof Kinds | "league_ranks";

const groups: { name: string; kinds: { kind: Kind; label: string; details: string }[] }[] = [
  {
    name: "Matches",
    kinds: [
      {
        kind: "reminder",
        label: "Reminders",
        details: "One hour before a match of your teams, if you haven't predicted it or answered a question",
      },
      { kind: "moved", label: "Changes", details: "If a match you predicted is moved, postponed or cancelled" },
      { kind: "result", label: "Points", details: "When the points for your prediction are known" },
      { kind: "correction", label: "Corrections", details: "If a corrected result changes your points" },
    ],
  },
  {
    name: "Leagues and coins",
    kinds: [
      {
        kind: "passed",
        label: "Places lost",
        details: "When you're passed in a league, at most once a day for each league",
      },
      { kind: "league_ranks", label: "Rounds", details: "After a round in which you lost places in a league" },
      { kind: "streak", label: "Streak", details: "Three hours before midnight UTC, if your streak is about to end" },
    ],
  },
  {
    name: "Chat",
    kinds: [
      { kind: "invitation", label: "Invitations", details: "When you're invited to a chat" },
      { kind: "mention", label: "Mentions", details: "When a message mentions you" },
    ],
  },
];

/** One switch for each kind of notification. */
export function KindSwitches(props: { settings: Schemas["Notifications"]; set: (kind: Kind, isOn: boolean) => void }) {
  const { settings, set } = props;
  const isOn = (kind: Kind) => (kind === "league_ranks" ? settings.league_ranks : settings.kinds[kind]);
  return groups.map((group) => (
    <fieldset key={group.name} className="kinds">
      <legend>{group.name}</legend>
      {group.kinds.map(({ kind, label, details }) => (
        <Switch key={kind} label={label} details={details} isOn={isOn(kind)} onChange={(isOn) => set(kind, isOn)} />
      ))}
    </fieldset>
  ));
}
