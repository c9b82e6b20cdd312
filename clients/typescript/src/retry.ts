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
  /** How many seconds a join waits in line in all while the chat is busy (`room_busy`). */
  longestLine: number;
}

export const defaultRetry: RetrySettings = { times: 3, longestPause: 10, firstPause: 0.5, longestLine: 180 };

/** A refused join that will be sent again. */
export interface InLine {
  /** How often the join was refused so far. */
  refusals: number;
  /** The join is sent again after this many seconds. */
  seconds: number;
}

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

/** A busy room refuses joins at once and spreads them with `Retry-After`. Such a refusal does not use up `times`. */
async function isInLine(response: Response): Promise<boolean> {
  if (response.status !== 503) return false;
  return (await MatchdayError.of(response.clone())).code === "room_busy";
}

/** Sends requests again after the service was busy or silent, where that is safe. */
export function withRetries(
  send: Fetch,
  settings: RetrySettings = defaultRetry,
  onWaiting?: (line: InLine) => void,
): Fetch {
  return async (request) => {
    const times = mayRepeat(request) ? settings.times : 0;
    const lineEnds = Date.now() + settings.longestLine * 1000;
    let refusals = 0;
    for (let tried = 0; ; tried += 1) {
      const isLast = tried >= times;
      let pause = backoff(tried + 1, settings.firstPause * 1000, settings.longestPause * 1000);
      try {
        // Sending uses up the body, and a join in line does not know which try is the last: every try sends a copy.
        const response = await send(request.clone());
        const asked = retryAfter(response);
        if (mayRepeat(request) && (await isInLine(response))) {
          refusals += 1;
          tried = -1;
          pause = asked ? asked * 1000 : backoff(refusals, settings.firstPause * 1000, settings.longestPause * 1000);
          if (Date.now() + pause > lineEnds) return response;
          onWaiting?.({ refusals, seconds: pause / 1000 });
        } else {
          if (isLast || !isWorthRepeating(request, response)) return response;
          if (asked !== undefined && asked > settings.longestPause) return response;
          if (asked !== undefined) pause = asked * 1000;
        }
        await response.body?.cancel();
      } catch (cause) {
        if (request.signal.aborted) throw cause;
        if (isLast) throw MatchdayError.unanswered(cause);
      }
      await wait(pause, request.signal);
    }
  };
}
