import type { Schemas } from "@matchday/client";
import { matchday, onSessionEnd } from "../session/session.ts";
import { allPages } from "../ui/pages.ts";
import { type Resource, useResource } from "../ui/resource.ts";

type Sport = Schemas["Sport"];
type RuleSet = Schemas["RuleSet"];
type Match = Pick<Schemas["Event"], "rule_set_id" | "tournament_id">;

/** Rules of a match: the values of its rule set and the limits of its sport. */
export interface Rules {
  ruleSet: RuleSet;
  sport: Sport;
}

/** A rule set never changes, and a sport hardly ever, so both are loaded once per session. */
const ruleSets = new Map<number, Promise<RuleSet>>();
/** By tournament. */
const sports = new Map<number, Promise<Sport>>();
onSessionEnd.add(() => {
  ruleSets.clear();
  sports.clear();
});

/** Rules of a match, or `undefined` data until the match is loaded. */
export function useRules(match: Match | undefined): Resource<Rules> {
  const { rule_set_id: set, tournament_id: tournament } = match ?? {};
  const { data, ...resource } = useResource<Rules | undefined>(
    async () => {
      if (set === undefined || tournament === undefined) return undefined;
      const [ruleSet, sport] = await Promise.all([
        once(ruleSets, set, loadRuleSet),
        once(sports, tournament, loadSport),
      ]);
      return { ruleSet, sport };
    },
    [set, tournament],
    "rules",
  );
  return { ...resource, data } as Resource<Rules>;
}

function once<T>(known: Map<number, Promise<T>>, id: number, load: (id: number) => Promise<T>): Promise<T> {
  const existing = known.get(id);
  if (existing) return existing;
  const loading = load(id);
  known.set(id, loading);
  loading.catch(() => known.delete(id));
  return loading;
}

async function loadRuleSet(id: number): Promise<RuleSet> {
  const { data } = await matchday.get("/api/auth/rule-sets/{id}", { params: { path: { id } } });
  return data;
}

async function loadSport(tournament: number): Promise<Sport> {
  const [tournaments, sports] = await Promise.all([
    allPages((page) => matchday.get("/api/auth/tournaments", { params: { query: { page, per_page: 100 } } })),
    allPages((page) => matchday.get("/api/auth/sports", { params: { query: { page, per_page: 100 } } })),
  ]);
  const id = tournaments.find(({ id }) => id === tournament)?.sport_id;
  const sport = sports.find((sport) => sport.id === id);
  if (!sport) throw new Error(`tournament ${tournament} has no sport`);
  return sport;
}
