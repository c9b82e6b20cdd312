// Entry point `@matchday/client/transport`: errors, retries and typed calls without the schema of the user API.
// `@matchday/server` is built on it.
export { type Arguments, type BodyOf, type CallOf, callOf, type Init, type Method, type PathsWith } from "./calls.js";
export { MatchdayError } from "./error.js";
export { type Fetch, type RetryLimits, type RetryOptions, withRetries } from "./retry.js";
export { wait } from "./wait.js";
