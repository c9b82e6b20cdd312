import { useEffect, useSyncExternalStore } from "react";
import { onSessionEnd } from "../session/session.ts";
import { type Draft, draftOf, isSame, type Question } from "./answer.ts";

type Drafts = ReadonlyMap<number, Draft>;

/** Unsaved answers by question. They are kept while the fan visits other pages, and when a question closes too early. */
let drafts: Drafts = new Map();
const listeners = new Set<() => void>();

function update(id: number, draft: Draft | undefined): void {
  const next = new Map(drafts);
  if (draft === undefined) next.delete(id);
  else next.set(id, draft);
  set(next);
}

function set(next: Drafts): void {
  drafts = next;
  for (const listener of listeners) listener();
}

onSessionEnd.add(() => set(new Map()));

export function useDrafts(): Drafts {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => {
        listeners.delete(listener);
      };
    },
    () => drafts,
  );
}

/** Whether the question closed before the fan saved a change. */
export function isLost(question: Question, drafts: Drafts): boolean {
  const draft = drafts.get(question.id);
  return question.status !== "open" && draft !== undefined && !isSame(draft, draftOf(question.my_answer?.answer));
}

/** Unsaved input of a question, or its saved answer. */
export function useDraft(question: Question) {
  const draft = useDrafts().get(question.id);
  const base = draftOf(question.my_answer?.answer);
  const isChanged = draft !== undefined && !isSame(draft, base);
  const isOpen = question.status === "open";
  useEffect(() => {
    if (!isChanged || !isOpen) return;
    // Makes the browser ask for confirmation before it closes the tab.
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener("beforeunload", warn);
    return () => window.removeEventListener("beforeunload", warn);
  }, [isChanged, isOpen]);
  return {
    values: isChanged ? draft : base,
    isChanged,
    edit: (draft: Draft) => update(question.id, isSame(draft, base) ? undefined : draft),
    discard: () => update(question.id, undefined),
  };
}
