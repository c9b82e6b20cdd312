import type { components } from "./schema.js";

type Body = components["schemas"]["ErrorBody"];

/**
 * What every call throws when the service refuses it, or when there is no answer at all.
 *
 * Decide by `code`, which is stable; show `message`, which is for people; put `errors` beside the fields they name.
 */
export class MatchdayError extends Error {
  override readonly name = "MatchdayError";
  /** The HTTP status; 0 where there was no answer. */
  readonly status: number;
  /** Which error it is, in `snake_case`; `no_answer` where there was none. */
  readonly code: string;
  /** On 422: what is wrong, by field. */
  readonly errors: Readonly<Record<string, readonly string[]>>;
  /** What to tell the operator. */
  readonly requestId: string | undefined;
  /** In so many seconds it may work; from `Retry-After`. */
  readonly retryAfter: number | undefined;

  constructor(
    message: string,
    facts: {
      status: number;
      code: string;
      errors?: Record<string, string[]> | undefined;
      requestId?: string | undefined;
      retryAfter?: number | undefined;
      cause?: unknown;
    },
  ) {
    super(message, facts.cause === undefined ? undefined : { cause: facts.cause });
    this.status = facts.status;
    this.code = facts.code;
    this.errors = facts.errors ?? {};
    this.requestId = facts.requestId;
    this.retryAfter = facts.retryAfter;
  }

  /** The error that an answer holds, read from its body. */
  static async of(response: Response): Promise<MatchdayError> {
    return MatchdayError.from(response, await response.json().catch(() => undefined));
  }

  /** The error that an answer holds whose body was read. A proxy in between may answer without a body of ours. */
  static from(response: Response, read: unknown): MatchdayError {
    const body: Partial<Body> = typeof read === "object" && read !== null ? read : {};
    return new MatchdayError(body.message ?? `The service answered ${response.status}.`, {
      status: response.status,
      code: body.code ?? `http_${response.status}`,
      errors: body.errors,
      requestId: body.request_id ?? response.headers.get("X-Request-Id") ?? undefined,
      retryAfter: retryAfter(response),
    });
  }

  /** The error of a request that nobody answered. */
  static unanswered(cause: unknown): MatchdayError {
    return new MatchdayError("The service could not be reached.", { status: 0, code: "no_answer", cause });
  }
}

/** `Retry-After` in seconds. The service sends seconds; a proxy may send a date. */
export function retryAfter(response: Response): number | undefined {
  const value = response.headers.get("Retry-After");
  if (value === null) return undefined;
  const seconds = /^\d+$/.test(value.trim()) ? Number(value) : (Date.parse(value) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, seconds) : undefined;
}
