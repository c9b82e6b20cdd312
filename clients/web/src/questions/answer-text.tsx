import { formatNumber } from "../matches/labels.ts";
import { Name } from "../ui/name.tsx";
import type { Draft, Question } from "./answer.ts";
import type { Team } from "./tournament-matches.ts";

interface Props {
  question: Pick<Question, "kind" | "options">;
  teams: Team[];
  answer: Draft;
}

/** Label of an option, name of a team, or a number. */
export function labelOf({ kind, options }: Props["question"], teams: Team[], key: string): string {
  if (kind === "number") return formatNumber(Number(key));
  if (kind === "team") return teams.find(({ id }) => String(id) === key)?.name ?? "…";
  return options?.find((option) => option.key === key)?.label ?? key;
}

/** An answer as text: "Ada Obi and Bea Lind". */
export function AnswerText({ question, teams, answer }: Props) {
  return answer.map((key, index) => (
    <span key={key}>
      {index > 0 && (index === answer.length - 1 ? " and " : ", ")}
      <Name>{labelOf(question, teams, key)}</Name>
    </span>
  ));
}
