import type { Schemas } from "@matchday/client";
import { useCallback, useEffect, useState } from "react";
import { endings } from "../session/session.ts";

export interface Draft {
  pick: Schemas["Pick"] | undefined;
  goals: Schemas["ScorePrediction"] | null;
  confidence: number;
}
type Saved = Pick<Schemas["ListedPrediction"], "prediction" | "score_prediction" | "confidence">;

/** Unsaved predictions by match: they survive a look at another page. */
const drafts = new Map<number, Draft>();
endings.add(() => drafts.clear());

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
 * The values of the form: the saved prediction, or what the fan changed since. As long as nothing is changed, the form
 * follows the saved prediction, for example after a save in another tab.
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
    // The browser asks before it closes the tab.
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
