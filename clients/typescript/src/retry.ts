import { MatchdayError, retryAfter } from "./error.js";
import { backoff, wait } from "./wait.js";

export type Fetch = (request: Request) => Promise<Response>;

export interface RetrySettings {
  /** How often a request is sent again at most. */
  times: number;
  /** The longest pause, in seconds. Where the service asks for a longer one, the caller is told at once instead. */
  longestPause: number;
  /** The first pause in seconds where the service names none; each further one is twice as long. */
  firstPause: number;
}

export const defaultRetry: RetrySettings = { times: 3, longestPause: 10, firstPause: 0.5 };

/** Whether a request that may have been carried out can be sent again without harm. */
export function mayRepeat(request: Request): boolean {
  const { method, headers } = request;
  return method === "GET" || method === "PUT" || (method === "POST" && headers.has("Idempotency-Key"));
}

/** Whether an answer says that the same request may succeed later. */
export function isWorthRepeating(request: Request, response: Response): boolean {
  if (response.status === 429 || response.status === 503) return true;
  // The first try of the same request is still under way: its answer is to be had by asking again.
  return response.status === 409 && request.headers.has("Idempotency-Key") && response.headers.has("Retry-After");
}

/** Sends requests again after the service was busy or silent, where that is safe. */
export function withRetries(send: Fetch, settings: RetrySettings = defaultRetry): Fetch {
  return async (request) => {
    const times = mayRepeat(request) ? settings.times : 0;
    for (let tried = 0; ; tried += 1) {
      const isLast = tried >= times;
      let pause = backoff(tried + 1, settings.firstPause * 1000, settings.longestPause * 1000);
      try {
        // A body can be read once: all tries but the last send a copy.
        const response = await send(isLast ? request : request.clone());
        if (isLast || !isWorthRepeating(request, response)) return response;
        const asked = retryAfter(response);
        if (asked !== undefined && asked > settings.longestPause) return response;
        if (asked !== undefined) pause = asked * 1000;
        await response.body?.cancel();
      } catch (cause) {
        if (request.signal.aborted) throw cause;
        if (isLast) throw MatchdayError.unanswered(cause);
      }
      await wait(pause, request.signal);
    }
  };
}
