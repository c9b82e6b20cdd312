import type { Schemas } from "@matchday/client";
import { isOpen } from "../matches/labels.ts";
import { Drafts, useUnloadWarning } from "../ui/drafts.ts";
import { type Draft, draftOf, isSame, type Saved } from "./draft.ts";

/** Unsaved predictions by match. They are also kept when a match starts before the fan saves. */
const drafts = new Drafts<Draft>();

/** Whether the fan has an unsaved prediction of a match. */
export const useHasDraft = (match: number): boolean => drafts.useAll().has(match);

/**
 * Values of the form: the fan's unsaved changes, or the saved prediction. Without changes, the form follows the saved
 * prediction, for example after a save in another tab.
 */
export function useDraft(match: Schemas["Event"], saved: Saved | undefined) {
  const draft = drafts.useAll().get(match.id);
  const base = draftOf(saved);
  const isChanged = draft !== undefined && !isSame(draft, base);
  useUnloadWarning(isChanged && isOpen(match));
  return {
    values: isChanged ? draft : base,
    isChanged,
    edit: (draft: Draft) => drafts.set(match.id, isSame(draft, base) ? undefined : draft),
    discard: () => drafts.set(match.id, undefined),
  };
}
