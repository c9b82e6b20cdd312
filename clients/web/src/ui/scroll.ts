/**
 * Puts the page back to where it was when the fan goes back, and to the top on a new page.
 *
 * Each history entry gets a name, under which its scroll position is kept. The browser's own restoration comes too early:
 * the content is not there yet.
 */
interface Entry {
  entry: string;
  from: string | undefined;
}

const storageKey = "matchday.scroll";
const positions = new Map<string, number>(JSON.parse(sessionStorage.getItem(storageKey) ?? "[]"));
const patience = 5_000;
let current = "";
let path: string | undefined;
let from: string | undefined;
/** The position that is to be restored; meanwhile the page's own movements are not the fan's. */
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
  // The same address entered again leaves the page as it is, but takes the name off its entry.
  history.replaceState({ entry: current, from } satisfies Entry, "");
  path = here;
}

arrive();
// Registered before the router's own listener, so that the entry is known when the new page is rendered.
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

/** Whether the entry before this one in the history shows this path, so that going back leads there. */
export function cameFrom(other: string): boolean {
  return from === other;
}

/** Scrolls to the position of this entry, as soon as the content is long enough; gives up if the fan scrolls. */
export function restore(): () => void {
  const target = wanted;
  if (target === undefined) return () => {};
  const moves = ["wheel", "touchstart", "keydown", "pointerdown"] as const;
  // The next page may have its own position wanted by the time this one is stopped.
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
  const timer = setTimeout(finish, patience);
  for (const move of moves) window.addEventListener(move, finish, { passive: true });
  observer.observe(document.body);
  attempt();
  return stop;
}
