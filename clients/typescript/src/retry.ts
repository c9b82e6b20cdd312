import { MatchdayError, retryAfter } from "./error.js";
import { backoff, wait } from "./wait.js";

export type Fetch = (request: Request) => Promise<Response>;

export interface RetrySettings {
  /** Maximum number of retries of a request. */
  times: number;
  /** Longest pause in seconds. If `Retry-After` is longer, the call fails immediately instead of waiting. */
  longestPause: number;
  /** First pause in seconds if the service sends no `Retry-After`. It doubles with each retry. */
  firstPause: number;
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
  settings: RetrySettings = defaultRetry,
  onWaiting?: (line: InLine) => void,
): Fetch {
  return async (request) => {
    const times = isRepeatable(request) ? settings.times : 0;
    const lineEnds = Date.now() + settings.longestLine * 1000;
    let refusals = 0;
    for (let tried = 0; ; tried += 1) {
      const isLast = tried >= times;
      let pause = backoff(tried + 1, settings.firstPause * 1000, settings.longestPause * 1000);
      try {
        // Sending consumes the body, and a join in line may be retried any number of times, so each try sends a clone.
        const response = await send(request.clone());
        const requested = retryAfter(response);
        if (isRepeatable(request) && (await isRoomBusy(response))) {
          refusals += 1;
          tried = -1;
          pause = requested
            ? requested * 1000
            : backoff(refusals, settings.firstPause * 1000, settings.longestPause * 1000);
          if (Date.now() + pause > lineEnds) return response;
          onWaiting?.({ refusals, seconds: pause / 1000 });
        } else {
          if (isLast || !isWorthRepeating(request, response)) return response;
          if (requested !== undefined && requested > settings.longestPause) return response;
          if (requested !== undefined) pause = requested * 1000;
        }
        await response.body?.cancel();
      } catch (cause) {
        if (request.signal.aborted) throw cause;
        if (isLast) throw MatchdayError.noResponse(cause);
      }
      await wait(pause, request.signal);
    }
  };
}
