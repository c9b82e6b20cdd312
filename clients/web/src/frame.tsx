import { type ReactNode, useEffect, useLayoutEffect, useRef, useState } from "react";
import { Link, useLocation } from "wouter";
import { useIsLive, useLive } from "./live/live.tsx";
import { profilePath } from "./people/person.ts";
import { useMe } from "./session/session.ts";
import { Mark } from "./ui/mark.tsx";
import { useIsOnline } from "./ui/refresh.ts";
import { restore } from "./ui/scroll.ts";

const places = [
  { href: "/", name: "Matches", icon: "M4 6.5h16M4 12h16M4 17.5h10" },
  {
    href: "/leagues",
    name: "Leagues",
    icon: "M8 4h8v5.5a4 4 0 0 1-8 0zM8 6H4.5c0 2.6 1.3 4.4 3.8 4.8M16 6h3.5c0 2.6-1.3 4.4-3.8 4.8M12 13.5V17M8.5 20h7M12 17c-1.6 0-2.5 1.2-2.5 3h5c0-1.8-.9-3-2.5-3",
  },
  { href: "/table", name: "Leaderboard", icon: "M5 19v-6M12 19V5M19 19v-9" },
  { href: "/me", name: "You", icon: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.5 20c1-4 4-5.5 7.5-5.5s6.5 1.5 7.5 5.5" },
];

/** Bars around every page: navigation, coins and connection state. */
export function Frame({ children }: { children: ReactNode }) {
  const { me, reload } = useMe();
  const [location] = useLocation();
  const isLive = useIsLive();
  const isOnline = useIsOnline();
  // biome-ignore lint/correctness/useExhaustiveDependencies: runs for each new location
  useLayoutEffect(() => restore(), [location]);
  // Points may also pay coins.
  useLive(({ kind }) => {
    if (kind === "points") reload();
  });
  const isHere = (href: string) =>
    location.startsWith(href === "/" ? "/match/" : href) ||
    (href === "/" && (location === "/" || location === "/questions")) ||
    (href === "/leagues" && location.startsWith("/join/")) ||
    (href === "/me" && location === profilePath(me.id));
  return (
    <>
      {/* A button, because a link would replace the fragment, which holds the path. */}
      <button type="button" className="skip" onClick={() => document.querySelector<HTMLElement>("#main h1")?.focus()}>
        Skip to content
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
          {isOnline && !isLive && <span className="connecting">Connecting…</span>}
        </p>
        <Link href="/me" className="coins numbers" aria-label={`${me.balance} coins`}>
          <i aria-hidden="true" /> {me.balance.toLocaleString("en")}
        </Link>
      </header>
      <Connection isOnline={isOnline} />
      {children}
    </>
  );
}

/** Shows that the device is offline, and briefly that it is back online. */
function Connection({ isOnline }: { isOnline: boolean }) {
  const [isBack, setBack] = useState(false);
  const wasOnline = useRef(isOnline);
  useEffect(() => {
    if (wasOnline.current === isOnline) return;
    wasOnline.current = isOnline;
    setBack(isOnline);
    const timer = setTimeout(() => setBack(false), 4000);
    return () => clearTimeout(timer);
  }, [isOnline]);
  return (
    <div className="connection" role="status">
      {!isOnline && <p className="offline">You're offline. Showing the last update.</p>}
      {isOnline && isBack && <p className="online">Back online</p>}
    </div>
  );
}
