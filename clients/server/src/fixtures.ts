// Fields of a fixture document, as in docs/fixtures.md. They are written by hand, because the OpenAPI description does not
// contain them.

export type MatchStatus =
  | "scheduled"
  | "live"
  | "finished"
  | "postponed"
  | "suspended"
  | "abandoned"
  | "cancelled"
  | "awarded";

/** One tournament with its teams, matches and questions. */
export interface FixtureDocument {
  sport: {
    slug: string;
    name: string;
    draws_allowed?: boolean | null;
    max_score?: number | null;
    rule_set?: string | null;
  };
  tournament: { slug: string; name: string; logo?: string | null; rule_set?: string | null };
  rule_sets?: FixtureRuleSet[] | null;
  teams: FixtureTeam[];
  matches: FixtureMatch[];
  questions?: FixtureQuestion[] | null;
}

export interface FixtureTeam {
  slug: string;
  name: string;
  country?: string | null;
  founded?: number | null;
  logo?: string | null;
}

/** Absent fields mean their defaults, also for a match that exists. */
export interface FixtureMatch {
  /** Identifies the match in the tournament. */
  key: string;
  /** Slug of a team of the document. */
  home: string;
  /** Slug of a team of the document. */
  away: string;
  start_time: string;
  venue?: string | null;
  status: MatchStatus;
  home_score?: number | null;
  away_score?: number | null;
  round?: number | null;
  stage?: string | null;
  knockout?: boolean | null;
  /** Only for a knockout match that is `finished` or `awarded`. */
  advanced?: "home" | "away" | null;
  multiplier?: 1 | 1.5 | 2 | 3 | null;
  rule_set?: string | null;
}

export interface FixtureRuleSet {
  slug: string;
  name: string;
  outcome?: number | null;
  difference?: number | null;
  exact?: number | null;
  margin?: { within: number; points: number } | null;
  stake?: number | null;
  advances?: number | null;
  /** Multipliers by stage. */
  multiplier?: Record<string, 1 | 1.5 | 2 | 3> | null;
  joker?: number | null;
}

export interface FixtureQuestion {
  key: string;
  text: string;
  kind: "choice" | "several_of" | "team" | "number";
  points: number;
  /** Key of a match of the document or the tournament. */
  match?: string | null;
  round?: number | null;
  options?: { key: string; label: string }[] | null;
  pick?: number | null;
  scoring?: "exact" | "nearest" | null;
  opens_at?: string | null;
  locks_at?: string | null;
  /** Option keys, team slugs or a number. */
  resolution?: string[] | number | null;
  void?: boolean | null;
}
