import type { Schemas } from "@matchday/client";
import { formatNumber, percentages } from "../matches/labels.ts";
import { draftOf, type Question, rightOf } from "./answer.ts";
import type { Team } from "./tournament-matches.ts";

export interface Bar {
  key: string;
  label: string;
  count: number;
  /** Percentage of the answers. Those of `several_of` add up to more than 100, because an answer has several options. */
  share: number;
  isOwn: boolean;
  isRight: boolean;
}

/** Most different numbers that have a bar each. More are combined into ranges. */
const mostNumbers = 8;
const ranges = 6;

/** Bars of all answers, or `undefined` for numbers if the list of answers is incomplete. */
export function barsOf(
  question: Pick<Question, "kind" | "options" | "resolution" | "my_answer">,
  teams: Team[],
  { data, meta }: Schemas["AnswerList"],
): Bar[] | undefined {
  const [own, right] = [draftOf(question.my_answer?.answer), rightOf(question)];
  const { distribution, total_answers: total } = meta;
  if (question.kind === "number" || distribution === null) {
    if (meta.next_cursor != null) return undefined;
    return numberBars(
      data.map(({ answer }) => Number(answer)),
      own.map(Number),
      right.map(Number),
    );
  }
  const labels = new Map(
    question.kind === "team"
      ? // Most teams of a large tournament have no answers.
        teams.map(({ id, name }) => [String(id), name])
      : question.options?.map(({ key, label }) => [key, label]),
  );
  const isShown = (key: string) =>
    question.kind !== "team" || key in distribution || own.includes(key) || right.includes(key);
  const keys = [...new Set([...labels.keys(), ...Object.keys(distribution)])].filter(isShown);
  const counts = keys.map((key) => distribution[key] ?? 0);
  const shares =
    question.kind === "several_of"
      ? counts.map((count) => (total === 0 ? 0 : Math.round((count / total) * 100)))
      : percentages(counts);
  return keys
    .map((key, index) => ({
      key,
      label: labels.get(key) ?? "Another team",
      count: counts[index] ?? 0,
      share: shares[index] ?? 0,
      isOwn: own.includes(key),
      isRight: right.includes(key),
    }))
    .sort((one, other) => other.count - one.count);
}

function numberBars(numbers: number[], own: number[], right: number[]): Bar[] {
  const different = [...new Set(numbers)].sort((one, other) => one - other);
  const [least = 0, most = 0] = [different[0], different.at(-1)];
  const size = different.length > mostNumbers ? Math.ceil((most - least + 1) / ranges) : 1;
  const starts =
    size === 1
      ? different
      : Array.from({ length: Math.ceil((most - least + 1) / size) }, (_, index) => least + index * size);
  const within = (start: number) => (number: number) => number >= start && number < start + size;
  const counts = starts.map((start) => numbers.filter(within(start)).length);
  const shares = percentages(counts);
  return starts.map((start, index) => ({
    key: String(start),
    label: size === 1 ? formatNumber(start) : `${formatNumber(start)}–${formatNumber(start + size - 1)}`,
    count: counts[index] ?? 0,
    share: shares[index] ?? 0,
    isOwn: own.some(within(start)),
    isRight: right.some(within(start)),
  }));
}
