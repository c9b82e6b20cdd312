import type { ReactNode } from "react";
import { Crest } from "../ui/crest.tsx";
import { Name } from "../ui/name.tsx";
import { type Draft, highestNumber, type Question, toggled } from "./answer.ts";
import type { Team } from "./tournament-matches.ts";

/** Most teams that have a card each. More are in a list, which phones show as a picker. */
const mostCards = 12;
/** Longest label that fits into half of the width of a phone. */
const longLabel = 20;

interface Props {
  question: Question;
  teams: Team[];
  values: Draft;
  edit: (draft: Draft) => void;
  /** Id of the element that describes what is missing. */
  hintId: string;
  isInvalid: boolean;
}

/** Fields for the answer to a question, by its kind. */
export function Fields(props: Props) {
  const { question, teams } = props;
  switch (question.kind) {
    case "choice":
    case "several_of":
      return <OptionCards {...props} />;
    case "team":
      return teams.length > mostCards ? <TeamSelect {...props} /> : <TeamCards {...props} />;
    case "number":
      return <NumberField {...props} />;
  }
}

function OptionCards(props: Props) {
  const options = props.question.options ?? [];
  const isLong = options.some(({ label }) => label.length > longLabel);
  return (
    <Cards className={`bonus-options${isLong ? " long" : ""}`} {...props}>
      {options.map(({ key, label }) => (
        <Card key={key} className="bonus-option" value={key} {...props}>
          <span className="bonus-mark" aria-hidden="true" />
          <Name>{label}</Name>
        </Card>
      ))}
    </Cards>
  );
}

function TeamCards(props: Props) {
  return (
    <Cards className={`bonus-teams${[2, 4].includes(props.teams.length) ? " even" : ""}`} {...props}>
      {props.teams.map((team) => (
        <Card key={team.id} className="pick" value={String(team.id)} {...props}>
          <Crest team={team} size={30} />
          <Name>{team.name}</Name>
        </Card>
      ))}
    </Cards>
  );
}

function Cards({ className, question, hintId, children }: Props & { className: string; children: ReactNode }) {
  return (
    <fieldset className={className} aria-describedby={question.kind === "several_of" ? hintId : undefined}>
      <legend className="unseen">Your answer</legend>
      {children}
    </fieldset>
  );
}

interface CardProps extends Props {
  className: string;
  value: string;
  children: ReactNode;
}

function Card({ className, value, question, values, edit, children }: CardProps) {
  const isSeveral = question.kind === "several_of";
  return (
    <label className={className}>
      <input
        type={isSeveral ? "checkbox" : "radio"}
        name={`answer-${question.id}`}
        value={value}
        checked={values.includes(value)}
        onChange={() => edit(isSeveral ? toggled(values, value) : [value])}
      />
      {children}
    </label>
  );
}

function TeamSelect({ teams, values, edit }: Props) {
  const [value = ""] = values;
  const chosen = teams.find(({ id }) => String(id) === value);
  return (
    <div className="bonus-select">
      {chosen && <Crest key={chosen.id} team={chosen} size={34} />}
      <select className="select" aria-label="Your answer" value={value} onChange={({ target }) => edit([target.value])}>
        <option value="" disabled>
          Choose a team
        </option>
        {teams.map(({ id, name }) => (
          <option key={id} value={id} dir="auto">
            {name}
          </option>
        ))}
      </select>
    </div>
  );
}

const digits = String(highestNumber).length;

function NumberField({ values, edit, hintId, isInvalid }: Props) {
  return (
    <input
      className="bonus-number numbers"
      inputMode="numeric"
      autoComplete="off"
      enterKeyHint="done"
      maxLength={digits}
      placeholder="0"
      aria-label="Your answer"
      aria-invalid={isInvalid}
      aria-describedby={hintId}
      value={values[0] ?? ""}
      onFocus={({ target }) => target.select()}
      onChange={({ target }) => {
        const text = target.value.replaceAll(/\D/g, "").replace(/^0+(?=\d)/, "");
        edit(text === "" ? [] : [text]);
      }}
    />
  );
}
