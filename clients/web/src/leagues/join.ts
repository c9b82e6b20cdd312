import { MatchdayError, type Schemas } from "@matchday/client";
import { matchday } from "../session/session.ts";
import { allPages } from "../ui/pages.ts";
import { notifyTabs } from "../ui/refresh.ts";
import { errorMessage } from "../ui/states.tsx";

export type League = Schemas["League"];
type Invitation = { code: string } | { league_id: number };

export interface Joined {
  league: League;
  /** False if the fan was a member already. */
  isNew: boolean;
}

/** All leagues of the fan, last joined first. */
export function ownLeagues(signal?: AbortSignal): Promise<League[]> {
  return allPages((page) =>
    matchday.get("/api/auth/leagues", { params: { query: { page, per_page: 100 } }, ...(signal && { signal }) }),
  );
}

const joining = new Map<string, Promise<Joined>>();

/** Joins a league by its code, or a public one by its id. Calls at the same time share one request. */
export function joinLeague(invitation: Invitation): Promise<Joined> {
  const key = JSON.stringify(invitation);
  const request = joining.get(key) ?? send(invitation).finally(() => joining.delete(key));
  joining.set(key, request);
  return request;
}

async function send(invitation: Invitation): Promise<Joined> {
  try {
    const { data } = await matchday.post("/api/auth/leagues/join", { body: invitation });
    notifyTabs();
    return { league: data, isNew: true };
  } catch (error) {
    if (!(error instanceof MatchdayError) || error.code !== "already_a_member") throw error;
    // The response does not name the league. Members can see its code.
    const known = (await ownLeagues()).find((league) =>
      "code" in invitation ? league.code === invitation.code : league.id === invitation.league_id,
    );
    if (!known) throw error;
    return { league: known, isNew: false };
  }
}

const noSuchCode = "No league has this code. Check it, or ask your friends for a new link.";
const refusals: Record<string, string> = {
  not_found: noSuchCode,
  validation_failed: noSuchCode,
  league_full: "This league is full. Ask its owner to allow more members.",
  removed_from_league: "The owner removed you from this league, so you can't join it again.",
  not_allowed: "You can't join this league.",
  too_many_leagues: "You're in as many leagues as possible. Leave one of them to join this one.",
  rate_limited: "Too many unknown codes. Try again later.",
};

/** Reason why the fan could not join. */
export const joinMessage = (error: unknown): string => errorMessage(error, refusals);

/** Whether a retry cannot help until the fan or the owner changes something. */
export function isRefused(error: unknown): boolean {
  return error instanceof MatchdayError && error.status >= 400 && error.status < 500 && error.code !== "rate_limited";
}
