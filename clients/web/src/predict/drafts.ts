import type { Schemas } from "@matchday/client";
import { useCallback, useEffect, useState } from "react";
import { onSessionEnd } from "../session/session.ts";

export interface Draft {
  pick: Schemas["Pick"] | undefined;
  goals: Schemas["ScorePrediction"] | null;
  confidence: number;
}
type Saved = Pick<Schemas["ListedPrediction"], "prediction" | "score_prediction" | "confidence">;

/** Unsaved predictions by match. They are kept while the fan visits other pages. */
const drafts = new Map<number, Draft>();
onSessionEnd.add(() => drafts.clear());

const untouched: Draft = { pick: undefined, goals: null, confidence: 50 };

export function draftOf(saved: Saved | undefined): Draft {
  if (!saved) return untouched;
  return { pick: saved.prediction, goals: saved.score_prediction, confidence: saved.confidence };
}

export function isSame(one: Draft, other: Draft): boolean {
  const goals = ({ goals }: Draft) => (goals ? `${goals.home}–${goals.away}` : "");
  return one.pick === other.pick && one.confidence === other.confidence && goals(one) === goals(other);
}

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
