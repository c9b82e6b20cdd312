import type { ReactNode } from "react";
import { Link, useLocation } from "wouter";
import { useIsLive } from "./live/live.tsx";
import { useMe } from "./session/session.ts";
import { Mark } from "./ui/mark.tsx";

const places = [
  { href: "/", name: "Matches", icon: "M4 6.5h16M4 12h16M4 17.5h10" },
  { href: "/table", name: "Table", icon: "M5 19v-6M12 19V5M19 19v-9" },
  { href: "/me", name: "You", icon: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.5 20c1-4 4-5.5 7.5-5.5s6.5 1.5 7.5 5.5" },
];

/** What is around every page: where one is, where one can go, and how many coins one has. */
export function Frame({ children }: { children: ReactNode }) {
  const { me } = useMe();
  const [location] = useLocation();
  const isLive = useIsLive();
  const isHere = (href: string) =>
    href === "/" ? location === "/" || location.startsWith("/match/") : location.startsWith(href);
  return (
    <>
      {/* No link: what is behind the # of an address is the page. */}
      <button type="button" className="skip" onClick={() => document.querySelector<HTMLElement>("#main h1")?.focus()}>
        Skip to the page
      </button>
      <header className="bar on-pitch">
        <Link href="/" className="brand">
          <Mark size={30} />
          <span>Matchday</span>
        </Link>
        <nav aria-label="Pages">
          {places.map(({ href, name, icon }) => (
            <Link key={href} href={href} aria-current={isHere(href) ? "page" : undefined}>
              <svg viewBox="0 0 24 24" aria-hidden="true" focusable="false">
                <path d={icon} />
              </svg>
              {name}
            </Link>
          ))}
        </nav>
        <p className="bar-state" role="status">
          {!isLive && <span className="connecting">Connecting…</span>}
        </p>
        <Link href="/me" className="coins numbers" aria-label={`${me.balance} coins`}>
          <i aria-hidden="true" /> {me.balance.toLocaleString("en")}
        </Link>
      </header>
      {children}
    </>
  );
}
