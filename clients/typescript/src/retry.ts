import { MatchdayError, retryAfter } from "./error.js";
import { backoff, wait } from "./wait.js";

export type Fetch = (request: Request) => Promise<Response>;

export interface RetryLimits {
  /** Maximum number of retries of a request. */
  times: number;
  /** Longest pause in seconds. If `Retry-After` is longer, the call fails immediately instead of waiting. */
  longestPause: number;
  /** First pause in seconds, in addition to `Retry-After`. It doubles with each retry. */
  firstPause: number;
  /** Seconds after the first try in which retries may start. Default: no limit. */
  longestTime?: number;
}

export interface RetrySettings extends RetryLimits {
  /** Total time in seconds that a join waits in line while the room is busy (`room_busy`). */
  longestLine: number;
}

export const defaultRetry: RetrySettings = { times: 3, longestPause: 10, firstPause: 0.5, longestLine: 180 };

/** A refused join that will be retried. */
export interface InLine {
  /** Number of refusals so far. */
  refusals: number;
  /** Seconds until the next try. */
  seconds: number;
}

export interface RetryOptions {
  /** Whether a request can be retried safely. Default: GET, PUT, and POST with an idempotency key. */
  isRepeatable?: (request: Request) => boolean;
  /** Called before each pause in line for a busy room. */
  onWaiting?: (line: InLine) => void;
}

/** Whether a request can be retried safely, even if the service may have processed it. */
export function isRepeatable(request: Request): boolean {
  const { method, headers } = request;
  return method === "GET" || method === "PUT" || (method === "POST" && headers.has("Idempotency-Key"));
}

/** Whether a retry of the same request may succeed. */
export function isWorthRepeating(request: Request, response: Response): boolean {
  if (response.status === 429 || response.status === 503) return true;
  // The first try is still in progress. A retry returns its response.
  return response.status === 409 && request.headers.has("Idempotency-Key") && response.headers.has("Retry-After");
}

/** A busy room refuses joins immediately and spreads them with `Retry-After`. These refusals do not count towards `times`. */
async function isRoomBusy(response: Response): Promise<boolean> {
  if (response.status !== 503) return false;
  return (await MatchdayError.of(response.clone())).code === "room_busy";
}

/** Wraps `send` with retries for requests that can be repeated safely. */
export function withRetries(
  send: Fetch,
  settings: RetryLimits & { longestLine?: number } = defaultRetry,
  options: RetryOptions = {},
): Fetch {
  const { times, longestPause, firstPause, longestTime = Number.POSITIVE_INFINITY, longestLine } = settings;
  const growing = (failures: number) => backoff(failures, firstPause * 1000, longestPause * 1000);
  return async (request) => {
    const mayRepeat = (options.isRepeatable ?? isRepeatable)(request);
    const began = Date.now();
    let refusals = 0;
    for (let tried = 0; ; tried += 1) {
      const isLast = !mayRepeat || tried >= times;
      let pause = growing(tried + 1);
      const isTooLate = () => Date.now() + pause > began + longestTime * 1000;
      try {
        // Sending consumes the body, and a join in line may be retried any number of times, so each try sends a clone.
        const response = await send(request.clone());
        const requested = retryAfter(response);
        if (mayRepeat && longestLine !== undefined && (await isRoomBusy(response))) {
          refusals += 1;
          tried = -1;
          pause = requested ? requested * 1000 : growing(refusals);
          if (Date.now() + pause > began + longestLine * 1000) return response;
          options.onWaiting?.({ refusals, seconds: pause / 1000 });
        } else {
          if (isLast || !isWorthRepeating(request, response)) return response;
          if (requested !== undefined && requested > longestPause) return response;
          // In addition to the backoff, because clients that are refused together would otherwise also return together.
          if (requested !== undefined) pause += requested * 1000;
          if (isTooLate()) return response;
        }
        await response.body?.cancel();
      } catch (cause) {
        if (request.signal.aborted) throw cause;
        if (isLast || isTooLate()) throw MatchdayError.noResponse(cause);
      }
      await wait(pause, request.signal);
    }
  };
}
