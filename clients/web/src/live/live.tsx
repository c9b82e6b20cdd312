import type { Schemas, StreamEvent } from "@matchday/client";
import { createContext, type ReactNode, useContext, useEffect, useRef, useState } from "react";
import { matchday } from "../session/session.ts";
import { useIsOnline } from "../ui/refresh.ts";

type Handler = (event: StreamEvent) => void;
type Match = Pick<Schemas["Event"], "status" | "status_detail" | "home_score" | "away_score" | "start_time">;

const LiveContext = createContext<{ isOpen: boolean; handlers: Set<Handler> }>({ isOpen: false, handlers: new Set() });

/** Holds the live stream, which all pages share. Reconnects immediately when the device is back online. */
export function LiveProvider({ children }: { children: ReactNode }) {
  const [handlers] = useState(() => new Set<Handler>());
  const [isOpen, setOpen] = useState(false);
  const isOnline = useIsOnline();
  const lastEventId = useRef<string>(undefined);
  useEffect(() => {
    if (!isOnline) return;
    const stop = new AbortController();
    const onConnection = (isOpen: boolean) => !stop.signal.aborted && setOpen(isOpen);
    const follow = async () => {
      const options = {
        signal: stop.signal,
        onConnection,
        ...(lastEventId.current && { lastEventId: lastEventId.current }),
      };
      for await (const event of matchday.stream({}, options)) {
        lastEventId.current = event.id;
        for (const handler of handlers) handler(event);
      }
    };
    // A final error. Another component shows an ended session. Otherwise the app works without live updates.
    follow().catch(() => onConnection(false));
    return () => {
      stop.abort();
      setOpen(false);
    };
  }, [handlers, isOnline]);
  return <LiveContext value={{ isOpen, handlers }}>{children}</LiveContext>;
}

/** Calls the handler with each live event while the component is mounted. */
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

/** Whether the live stream is connected. */
export function useIsLive(): boolean {
  return useContext(LiveContext).isOpen;
}

/** Returns the match with the state that the stream reported. */
export function updated<T extends Match>(match: T, update: Schemas["StreamMatch"]): T {
  const { status, status_detail, start_time, home_score, away_score } = update;
  return { ...match, status, status_detail, start_time, home_score, away_score };
}
