import type { components } from "./schema.js";

type Body = components["schemas"]["ErrorBody"];

/**
 * Thrown by every call if the service returns an error or cannot be reached.
 *
 * Branch on `code`, which is stable. Show `message` to the user, and show `errors` next to the fields that they name.
 */
export class MatchdayError extends Error {
  override readonly name = "MatchdayError";
  /** HTTP status; 0 if there was no response. */
  readonly status: number;
  /** Error code in `snake_case`; `no_response` if there was no response, `cannot_stream` if the runtime cannot stream. */
  readonly code: string;
  /** Validation messages by field, for status 422. */
  readonly errors: Readonly<Record<string, readonly string[]>>;
  /** Identifies the request in the logs of the service. Quote it when you contact the operator. */
  readonly requestId: string | undefined;
  /** Seconds after which a retry may succeed, from `Retry-After`. */
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

  /** Reads the error from the body of a response. */
  static async of(response: Response): Promise<MatchdayError> {
    return MatchdayError.from(response, await response.json().catch(() => undefined));
  }

  /** Creates the error from a response and its parsed body. Responses of a proxy may have a different body or none. */
  static from(response: Response, parsed: unknown): MatchdayError {
    const body: Partial<Body> = typeof parsed === "object" && parsed !== null ? parsed : {};
    return new MatchdayError(body.message ?? `The service responded with status ${response.status}.`, {
      status: response.status,
      code: body.code ?? `http_${response.status}`,
      errors: body.errors,
      requestId: body.request_id ?? response.headers.get("X-Request-Id") ?? undefined,
      retryAfter: retryAfter(response),
    });
  }

  /** Creates the error of a request that got no response. */
  static noResponse(cause: unknown): MatchdayError {
    return new MatchdayError("The service could not be reached.", { status: 0, code: "no_response", cause });
  }
}

/** Returns `Retry-After` in seconds. The service sends seconds, but a proxy may send a date. */
export function retryAfter(response: Response): number | undefined {
  const value = response.headers.get("Retry-After");
  if (value === null) return undefined;
  const seconds = /^\d+$/.test(value.trim()) ? Number(value) : (Date.parse(value) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, seconds) : undefined;
}
