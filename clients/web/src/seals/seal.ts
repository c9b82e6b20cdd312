import type { Schemas } from "@matchday/client";
import { useState } from "react";
import { useLive } from "../live/live.tsx";
import { matchday } from "../session/session.ts";
import { useResource } from "../ui/resource.ts";

type Seal = Schemas["Seal"];

/**
 * Returns the latest seal of a match; null if it has none, and undefined while it loads. A seal that the live stream reports
 * is returned immediately. Otherwise, the seal is loaded only if it is wanted.
 */
export function useSeal(match: number, isWanted: boolean): Seal | null | undefined {
  const resource = useResource(
    async (signal) => {
      if (!isWanted) return null;
      const { data } = await matchday.get("/api/seals", { params: { query: { event_id: match } }, signal });
      return data.at(-1) ?? null;
    },
    [match, isWanted],
  );
  const [reported, setReported] = useState<Seal>();
  useLive((event) => {
    if (event.kind === "reset") resource.reload();
    if (event.kind === "sealed" && event.data.event_id === match) setReported(event.data);
  });
  // A page that was cached before the match was sealed must not replace the seal of the stream.
  const loaded = resource.data;
  if (reported?.event_id !== match) return loaded;
  return loaded && loaded.event_sequence > reported.event_sequence ? loaded : reported;
}
