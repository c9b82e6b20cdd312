import { MatchdayError } from "./error.js";
import type { components, operations } from "./schema.js";
import { type Block, EventStreamParser } from "./sse.js";
import { backoff, wait } from "./wait.js";

type Schemas = components["schemas"];

/** An event of the live stream. `kind` determines the type of `data`. */
export type StreamEvent = { id: string } & (
  | { kind: "event"; data: Schemas["StreamMatch"] }
  | { kind: "result"; data: Schemas["StreamResult"] }
  | { kind: "tally"; data: Schemas["StreamTally"] }
  | { kind: "points"; data: Schemas["StreamPoints"] }
  | { kind: "rank"; data: Schemas["StreamRank"] }
  | { kind: "round"; data: StreamRound }
  | { kind: "league.rank"; data: StreamLeagueRank }
  | { kind: "sealed"; data: Schemas["Seal"] }
  /** Missed events are no longer available: reload the lists. */
  | { kind: "reset"; data: Record<string, never> }
  /** With the filter `chat`. It has no own `id`, and `id` is that of the event before it. A reconnect repeats messages. */
  | { kind: "chat"; data: Schemas["StreamChat"] }
);

/** A round of a tournament that is complete. It is sent again after a correction. */
export type StreamRound = Schemas["StreamRound"];

/** New rank of the caller in a league. */
export type StreamLeagueRank = Schemas["StreamLeagueRank"];

/** Filters of the live stream. Without any, all events are sent. */
export type StreamFilters = Omit<NonNullable<operations["listen"]["parameters"]["query"]>, "last_event_id">;

export interface StreamOptions {
  /** Ends the iteration, without an error. */
  signal?: AbortSignal;
  /** Resume after the event with this id. */
  lastEventId?: string;
  /** Seconds without data after which the connection counts as lost. Default: 30, twice the `stream.heartbeat` setting. */
  silence?: number;
  /** Pause in seconds after the first failed connection. It doubles with each failure. */
  firstPause?: number;
  /** Longest pause between connections, in seconds. */
  longestPause?: number;
  /** Called when the connection opens or is lost. */
  onConnection?: (isOpen: boolean) => void;
}

/** Opens a connection with these headers. */
export type Connect = (headers: Headers, signal: AbortSignal) => Promise<Response>;

/** A record, so that compilation fails if the OpenAPI description has a kind that `StreamEvent` lacks. */
const kinds: Record<StreamEvent["kind"], true> &
  Record<Exclude<Schemas["StreamEventKind"], StreamEvent["kind"]>, never> = {
  event: true,
  result: true,
  tally: true,
  points: true,
  rank: true,
  round: true,
  "league.rank": true,
  sealed: true,
  reset: true,
  chat: true,
};

/** Yields the events of the stream and reconnects until the iteration ends. */
export async function* listen(connect: Connect, options: StreamOptions = {}): AsyncGenerator<StreamEvent, void, void> {
  const { signal, silence = 30, firstPause = 1, longestPause = 30, onConnection } = options;
  let lastId = options.lastEventId ?? "";
  let failures = 0;
  let retry = 0;
  while (!signal?.aborted) {
    let pause: number | undefined;
    const began = Date.now();
    try {
      for await (const blocks of connection(connect, lastId, silence * 1000, signal, () => onConnection?.(true))) {
        failures = 0;
        for (const block of blocks) {
          retry = block.retry ?? retry;
          const event = parse(block, lastId);
          // Updated after the yield: if the consumer fails while it handles an event, that event is sent again.
          if (event) yield event;
          lastId = block.id ?? lastId;
        }
      }
      // Connections that the server ends right after opening count as failures, so that each is followed by a pause.
      if (Date.now() - began < firstPause * 1000) failures += 1;
    } catch (error) {
      if (signal?.aborted) return;
      if (isFinal(error)) throw error;
      if (error instanceof MatchdayError) pause = error.retryAfter;
      failures += 1;
    } finally {
      onConnection?.(false);
    }
    if (signal?.aborted) return;
    // The server ends connections regularly and chooses the pause after them, which is different for each client so that
    // they do not all reconnect at once. Failures are followed by a longer pause.
    const chosen = Math.min(retry, longestPause * 1000);
    const milliseconds =
      pause !== undefined
        ? pause * 1000
        : Math.max(chosen, failures && backoff(failures, firstPause * 1000, longestPause * 1000));
    if (milliseconds > 0) await wait(milliseconds, signal).catch(() => {});
  }
}

/** Yields the blocks of one connection until it ends or times out. */
async function* connection(
  connect: Connect,
  lastId: string,
  silence: number,
  signal: AbortSignal | undefined,
  opened: () => void,
): AsyncGenerator<Block[], void, void> {
  const own = new AbortController();
  const abort = () => own.abort(signal?.reason);
  signal?.addEventListener("abort", abort, { once: true });
  const watchdog = () => setTimeout(() => own.abort(new Error("The stream timed out.")), silence);
  let timer = watchdog();
  try {
    const headers = new Headers({ Accept: "text/event-stream" });
    if (lastId) headers.set("Last-Event-ID", lastId);
    const response = await connect(headers, own.signal);
    if (!response.ok) throw await MatchdayError.of(response);
    if (!response.body) throw cannotStream();
    opened();
    const reader = response.body.getReader();
    // Not every `fetch` ends the body when the request is aborted.
    own.signal.addEventListener("abort", () => void reader.cancel().catch(() => {}), { once: true });
    const parser = new EventStreamParser();
    for (let hasData = false; ; hasData = true) {
      const { done, value } = await reader.read();
      clearTimeout(timer);
      if (done) {
        if (own.signal.aborted) throw own.signal.reason;
        // A connection that ends before its first byte has failed. Reconnecting without a pause would flood the server.
        if (!hasData) throw new Error("The stream ended without any data.");
        return;
      }
      yield parser.push(value);
      // The timeout covers only the network. The consumer may take any time to handle the blocks.
      timer = watchdog();
    }
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
    own.abort();
  }
}

function parse(block: Block, lastId: string): StreamEvent | undefined {
  // A newer service may send kinds that this client does not know.
  if (block.data === undefined || !Object.hasOwn(kinds, block.event ?? "")) return undefined;
  const data: unknown = JSON.parse(block.data || "{}");
  return { id: block.id ?? lastId, kind: block.event, data } as StreamEvent;
}

/** Error of a runtime whose `fetch` does not return the body as a stream. */
export function cannotStream(): MatchdayError {
  const message = "This runtime cannot stream: set the option fetch to one whose responses have a body.";
  return new MatchdayError(message, { status: 0, code: "cannot_stream" });
}

/** Whether a retry cannot fix the error. */
function isFinal(error: unknown): boolean {
  if (error instanceof SyntaxError || (error instanceof MatchdayError && error.code === "cannot_stream")) return true;
  return error instanceof MatchdayError && error.status >= 400 && error.status < 500 && error.status !== 429;
}
