/**
 * Restores the scroll position when the fan goes back, and scrolls to the top on a new page.
 *
 * Each history entry gets an id, under which its scroll position is stored. The browser's own restoration runs too early,
 * before the content is loaded.
 */
interface Entry {
  entry: string;
  from: string | undefined;
}

const storageKey = "matchday.scroll";
const positions = new Map<string, number>(JSON.parse(sessionStorage.getItem(storageKey) ?? "[]"));
/** Milliseconds after which an attempt to restore the position is given up. */
const timeLimit = 5_000;
let current = "";
let path: string | undefined;
let from: string | undefined;
/** Position to restore. While it is set, scroll events come from the page, not from the fan. */
let wanted: number | undefined;

history.scrollRestoration = "manual";

function arrive(): void {
  const known = history.state as Entry | null;
  const here = location.hash.replace(/^#?\/?/, "/");
  if (known?.entry === current) return;
  if (known?.entry) {
    current = known.entry;
    from = known.from;
    wanted = positions.get(current) ?? 0;
  } else if (here !== path) {
    current = `${Date.now()}.${Math.random()}`;
    from = path;
    wanted = 0;
  }
  // Entering the same address again keeps the page but clears the state of its history entry.
  history.replaceState({ entry: current, from } satisfies Entry, "");
  path = here;
}

arrive();
// Registered before the router's listener, so that the entry is set when the new page renders.
window.addEventListener("popstate", arrive);
window.addEventListener("hashchange", arrive);
window.addEventListener(
  "scroll",
  () => {
    if (wanted === undefined) positions.set(current, window.scrollY);
  },
  { passive: true },
);
window.addEventListener("pagehide", () => {
  sessionStorage.setItem(storageKey, JSON.stringify([...positions].slice(-50)));
});

/** Whether the previous history entry is this path, so that going back leads there. */
export function cameFrom(other: string): boolean {
  return from === other;
}

/** Path of the previous history entry, if it belongs to the app. */
export const previousPath = (): string | undefined => from;

/** Scrolls to the position of this entry when the content is long enough. Stops if the fan scrolls. */
export function restore(): () => void {
  const target = wanted;
  if (target === undefined) return () => {};
  const moves = ["wheel", "touchstart", "keydown", "pointerdown"] as const;
  // Does not clear `wanted`, which may already belong to the next page.
  const stop = () => {
    observer.disconnect();
    clearTimeout(timer);
    for (const move of moves) window.removeEventListener(move, finish);
  };
  const finish = () => {
    stop();
    wanted = undefined;
  };
  const attempt = () => {
    window.scrollTo(0, target);
    if (Math.abs(window.scrollY - target) < 2) finish();
  };
  const observer = new ResizeObserver(attempt);
  const timer = setTimeout(finish, timeLimit);
  for (const move of moves) window.addEventListener(move, finish, { passive: true });
  observer.observe(document.body);
  attempt();
  return stop;
}
