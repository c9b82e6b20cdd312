import { Drafts, useUnloadWarning } from "../ui/drafts.ts";
import { type Draft, draftOf, isSame, type Question } from "./answer.ts";

/** Unsaved answers by question. They are also kept when a question closes too early. */
const drafts = new Drafts<Draft>();

export const useDrafts = (): ReadonlyMap<number, Draft> => drafts.useAll();

/** Whether the question closed before the fan saved a change. */
export function isLost(question: Question, drafts: ReadonlyMap<number, Draft>): boolean {
  const draft = drafts.get(question.id);
  return question.status !== "open" && draft !== undefined && !isSame(draft, draftOf(question.my_answer?.answer));
}

/** Unsaved input of a question, or its saved answer. */
export function useDraft(question: Question) {
  const draft = useDrafts().get(question.id);
  const base = draftOf(question.my_answer?.answer);
  const isChanged = draft !== undefined && !isSame(draft, base);
  useUnloadWarning(isChanged && question.status === "open");
  return {
    values: isChanged ? draft : base,
    isChanged,
    edit: (draft: Draft) => drafts.set(question.id, isSame(draft, base) ? undefined : draft),
    discard: () => drafts.set(question.id, undefined),
  };
}
