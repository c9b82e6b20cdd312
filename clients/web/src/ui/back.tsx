import { Link } from "wouter";
import { cameFrom } from "./scroll.ts";

/** Link to the page above. Goes back in the history if the fan came from there, which restores the scroll position. */
export function Back({ to, children }: { to: string; children: string }) {
  return (
    <Link
      href={to}
      className="back"
      onClick={(event) => {
        if (!cameFrom(to) || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
        event.preventDefault();
        history.back();
      }}
    >
      <span aria-hidden="true">←</span> {children}
    </Link>
  );
}
