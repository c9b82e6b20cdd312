import { type ReactNode, useEffect, useRef } from "react";

/** Page with a heading, which gets the focus so that keyboard and screen reader users start there. */
export function Page({
  title,
  heading,
  before,
  className = "",
  children,
}: {
  title: string;
  heading?: ReactNode;
  /** Shown above the heading, such as a link back. */
  before?: ReactNode;
  className?: string;
  children: ReactNode;
}) {
  const top = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · Matchday`;
  }, [title]);
  useEffect(() => {
    top.current?.focus({ preventScroll: true });
  }, []);
  return (
    <main id="main" className={`page ${className}`}>
      {before}
      <h1 ref={top} tabIndex={-1} className={heading === null ? "unseen" : undefined}>
        {heading ?? title}
      </h1>
      {children}
    </main>
  );
}
