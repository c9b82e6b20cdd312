import { type ReactNode, useEffect, useSyncExternalStore } from "react";
import { Link } from "wouter";
import { onSessionEnd } from "../session/session.ts";
import "./toasts.css";

interface Toast {
  number: number;
  /** A new toast replaces an earlier one about the same subject. */
  about: string;
  text: ReactNode;
  href: string | undefined;
}

const most = 3;
/** Milliseconds for which a toast is shown. */
const lifetime = 8_000;
let last = 0;
let toasts: readonly Toast[] = [];
const listeners = new Set<() => void>();

function update(next: readonly Toast[]): void {
  toasts = next;
  for (const listener of listeners) listener();
}

onSessionEnd.add(() => update([]));

/** Shows a short message on every page. With `href`, it links to a page. */
export function toast(about: string, text: ReactNode, href?: string): void {
  last += 1;
  update([...toasts.filter((other) => other.about !== about), { number: last, about, text, href }].slice(-most));
}

export function Toasts() {
  const shown = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => {
        listeners.delete(listener);
      };
    },
    () => toasts,
  );
  return (
    <section className="toasts" role="status" aria-label="Messages of the app">
      {shown.map((one) => (
        <Item key={one.number} toast={one} />
      ))}
    </section>
  );
}

function Item({ toast: { number, text, href } }: { toast: Toast }) {
  useEffect(() => {
    const timer = setTimeout(() => update(toasts.filter((other) => other.number !== number)), lifetime);
    return () => clearTimeout(timer);
  }, [number]);
  return href === undefined ? (
    <p className="toast on-pitch">{text}</p>
  ) : (
    <Link href={href} className="toast on-pitch">
      {text}
    </Link>
  );
}
