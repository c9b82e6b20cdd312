import type { Schemas } from "@matchday/client";

export type Question = Schemas["Question"];
export type Answer = Schemas["Answer"];

/** Highest number that the service takes as an answer. */
export const highestNumber = 1_000_000;

/** Input of the form: keys of options, the id of a team, or the digits of a number. Empty without an answer. */
export type Draft = readonly string[];

export function draftOf(answer: Answer | null | undefined): Draft {
  if (answer == null) return [];
  return Array.isArray(answer) ? answer : [String(answer)];
}

/** Whether two drafts are the same answer. The order of options has no meaning. */
export function isSame(one: Draft, other: Draft): boolean {
  return one.length === other.length && one.every((key) => other.includes(key));
}

/** Adds an option to the draft or removes it. */
export function toggled(draft: Draft, key: string): Draft {
  return draft.includes(key) ? draft.filter((other) => other !== key) : [...draft, key];
}

/** The answer of a complete draft, otherwise `undefined`. */
export function answerOf({ kind, pick }: Pick<Question, "kind" | "pick">, draft: Draft): Answer | undefined {
  const [first] = draft;
  if (first === undefined) return undefined;
  switch (kind) {
    case "choice":
      return first;
    case "team":
      return Number(first);
    case "several_of":
      return draft.length === pick ? [...draft] : undefined;
    case "number":
      return Number(first) <= highestNumber ? Number(first) : undefined;
  }
}

/** Next step to complete a draft; `undefined` if it is empty or complete. */
export function hintOf({ kind, pick }: Pick<Question, "kind" | "pick">, draft: Draft): string | undefined {
  const [first] = draft;
  if (first === undefined) return undefined;
  if (kind === "number" && Number(first) > highestNumber) {
    return `The highest number is ${highestNumber.toLocaleString("en")}.`;
  }
  if (kind !== "several_of" || pick === null || draft.length === pick) return undefined;
  return draft.length < pick
    ? `Pick ${pick - draft.length} more.`
    : `Remove ${draft.length - pick}: this question takes ${pick} picks.`;
}

/** Right answers as a list, or an empty one before the resolution. */
export function rightOf({ resolution }: Pick<Question, "resolution">): Draft {
  if (resolution === null) return [];
  return Array.isArray(resolution) ? resolution.map(String) : [String(resolution)];
}

/** Points at stake. */
export function pointsText({ kind, points }: Pick<Question, "kind" | "points">): string {
  const text = `${points.toLocaleString("en")} ${points === 1 ? "point" : "points"}`;
  return kind === "several_of" ? `${text} per right pick` : text;
}

/** How to answer, where the fields do not say it. */
export function rulesText({ kind, pick, options, scoring }: Question): string | undefined {
  if (kind === "several_of") return `Pick ${pick} of ${options?.length}.`;
  if (kind === "number") return scoring === "nearest" ? "The nearest number wins." : "Only the exact number counts.";
  return undefined;
}

/** Whether an answer, or one of its options, is right. A number may be right because it is the nearest. */
export function isRight(question: Pick<Question, "kind" | "resolution" | "my_answer">, key: string): boolean {
  return question.kind === "number" ? (question.my_answer?.points_earned ?? 0) > 0 : rightOf(question).includes(key);
}

/** Number of questions that wait for an answer. */
export const unanswered = (questions: Question[]): number =>
  questions.filter(({ status, my_answer }) => status === "open" && my_answer === null).length;

/** Points that the fan won with questions. */
export const pointsWon = (questions: Question[]): number =>
  questions.reduce((sum, { my_answer }) => sum + (my_answer?.points_earned ?? 0), 0);
