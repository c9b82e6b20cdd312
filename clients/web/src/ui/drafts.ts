import { useEffect, useSyncExternalStore } from "react";
import { onSessionEnd } from "../session/session.ts";

/**
 * Unsaved input by the id of its subject. It lasts until the session ends, so that the fan finds it again after a visit to
 * another page, and after the subject was closed.
 */
export class Drafts<T> {
  #all: ReadonlyMap<number, T> = new Map();
  readonly #listeners = new Set<() => void>();

  constructor() {
    onSessionEnd.add(() => this.#replace(new Map()));
  }

  /** Stores a draft, or removes it if it is `undefined`. */
  set(id: number, draft: T | undefined): void {
    const next = new Map(this.#all);
    if (draft === undefined) next.delete(id);
    else next.set(id, draft);
    this.#replace(next);
  }

  /** All drafts. The component is rendered again when one changes. */
  useAll(): ReadonlyMap<number, T> {
    return useSyncExternalStore(this.#subscribe, () => this.#all);
  }

  #replace(next: ReadonlyMap<number, T>): void {
    this.#all = next;
    for (const listener of this.#listeners) listener();
  }

  readonly #subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  };
}

/** Makes the browser ask for confirmation before it closes the tab. */
export function useUnloadWarning(isNeeded: boolean): void {
  useEffect(() => {
    if (!isNeeded) return;
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener("beforeunload", warn);
    return () => window.removeEventListener("beforeunload", warn);
  }, [isNeeded]);
}
