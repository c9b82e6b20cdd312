import type { Schemas, StreamEvent } from "@matchday/client";
import { createContext, type ReactNode, useContext, useEffect, useRef, useState } from "react";
import { matchday } from "../session/session.ts";

type Handler = (event: StreamEvent) => void;
type Match = Pick<Schemas["Event"], "status" | "status_detail" | "home_score" | "away_score" | "start_time">;

const LiveContext = createContext<{ isOpen: boolean; handlers: Set<Handler> }>({ isOpen: false, handlers: new Set() });

/** One connection for the whole page, which everything that is shown listens to. */
export function LiveProvider({ children }: { children: ReactNode }) {
  const [handlers] = useState(() => new Set<Handler>());
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const stop = new AbortController();
    const follow = async () => {
      for await (const event of matchday.stream({}, { signal: stop.signal, onConnection: setOpen })) {
        for (const handler of handlers) handler(event);
      }
    };
    // Refused for good: a session that is over brings the login; otherwise the page just is not live.
    follow().catch(() => setOpen(false));
    return () => stop.abort();
  }, [handlers]);
  return <LiveContext value={{ isOpen, handlers }}>{children}</LiveContext>;
}

/** Calls the handler with what happens, while the caller is shown. */
export function useLive(handler: Handler): void {
  const { handlers } = useContext(LiveContext);
  const latest = useRef(handler);
  useEffect(() => {
    latest.current = handler;
  });
  useEffect(() => {
    const listener: Handler = (event) => latest.current(event);
    handlers.add(listener);
    return () => {
      handlers.delete(listener);
    };
  }, [handlers]);
}

/** Whether what is shown is kept up to date. */
export function useIsLive(): boolean {
  return useContext(LiveContext).isOpen;
}

/** A match as the stream told it. */
export function updated<T extends Match>(match: T, told: Schemas["StreamMatch"]): T {
  const { status, status_detail, start_time, home_score, away_score } = told;
  return { ...match, status, status_detail, start_time, home_score, away_score };
}
