export { MatchdayError, type RetryLimits } from "@matchday/client/transport";
export {
  type Call,
  createServerClient,
  type Fact,
  type FactsOptions,
  type FactsPage,
  type ImportOptions,
  type ImportReport,
  type PostCall,
  type ResponseBody,
  type ServerClient,
  type ServerClientOptions,
} from "./client.js";
export type {
  FixtureDocument,
  FixtureMatch,
  FixtureQuestion,
  FixtureRuleSet,
  FixtureTeam,
  MatchStatus,
} from "./fixtures.js";

import type { components } from "./schema.js";

export type { components, operations, paths } from "./schema.js";
/** Types of the OpenAPI description by name: `Schemas["ServerUser"]`. */
export type Schemas = components["schemas"];
