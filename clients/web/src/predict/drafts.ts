import { useCallback, useEffect, useState } from "react";
import { onSessionEnd } from "../session/session.ts";
import { type Draft, draftOf, isSame, type Saved } from "./draft.ts";

/** Unsaved predictions by match. They are kept while the fan visits other pages. */
const drafts = new Map<number, Draft>();
onSessionEnd.add(() => drafts.clear());

/**
 * Values of the form: the fan's unsaved changes, or the saved prediction. Without changes, the form follows the saved
 * prediction, for example after a save in another tab.
 */
export function useDraft(match: number, saved: Saved | undefined) {
  const [draft, setDraft] = useState(() => drafts.get(match));
  const base = draftOf(saved);
  const isChanged = draft !== undefined && !isSame(draft, base);
  const edit = useCallback(
    (draft: Draft) => {
      if (isSame(draft, draftOf(saved))) drafts.delete(match);
      else drafts.set(match, draft);
      setDraft(draft);
    },
    [match, saved],
  );
  useEffect(() => {
    if (!isChanged) return;
    // Makes the browser ask for confirmation before it closes the tab.
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener("beforeunload", warn);
    return () => window.removeEventListener("beforeunload", warn);
  }, [isChanged]);
  const discard = useCallback(() => {
    drafts.delete(match);
    setDraft(undefined);
  }, [match]);
  return { values: isChanged ? draft : base, isChanged, edit, discard };
}
