export { type Call, type ChatKeys, type Login, Matchday, type MatchdayOptions, type ResponseBody } from "./client.js";
export { MatchdayError } from "./error.js";
export type { InLine, RetrySettings } from "./retry.js";
export { browserStorage, memoryStorage, type TokenStorage } from "./storage.js";
export type { StreamEvent, StreamFilters, StreamLeagueRank, StreamOptions, StreamRound } from "./stream.js";
export {
  type Flagged,
  MalformedProofError,
  type Verification,
  type VerificationCheck,
  type VerificationFailure,
  type VerificationFlag,
  verifyReceipt,
} from "./verify.js";

import type { components } from "./schema.js";

export type { components, operations, paths } from "./schema.js";
/** Types of the OpenAPI description by name: `Schemas["Event"]`. */
export type Schemas = components["schemas"];
