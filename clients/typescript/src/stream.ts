import { MatchdayError } from "./error.js";
import type { components, operations } from "./schema.js";
import { type Block, EventStreamParser } from "./sse.js";
import { backoff, wait } from "./wait.js";

type Schemas = components["schemas"];

/** What the stream tells: `kind` says what `data` is. */
export type StreamEvent = { id: string } & (
  | { kind: "event"; data: Schemas["StreamMatch"] }
  | { kind: "result"; data: Schemas["StreamResult"] }
  | { kind: "tally"; data: Schemas["StreamTally"] }
  | { kind: "points"; data: Schemas["StreamPoints"] }
  | { kind: "rank"; data: Schemas["StreamRank"] }
  /** Something was missed that cannot be had any more: read the lists again. */
  | { kind: "reset"; data: Record<string, never> }
);

/** What to hear of; all of it when nothing is named. */
export type StreamFilters = Omit<NonNullable<operations["listen"]["parameters"]["query"]>, "last_event_id">;

export interface StreamOptions {
  /** Ends the iteration, without an error. */
  signal?: AbortSignal;
  /** Go on after the event with this id. */
  lastEventId?: string;
  /** After so many seconds without a byte the connection counts as lost: twice `stream.heartbeat` of the service. */
  silence?: number;
  /** The first pause after a connection that failed, in seconds; each further one is twice as long. */
  firstPause?: number;
  /** The longest pause, in seconds. */
  longestPause?: number;
  /** Is told when the connection is there, and when it is gone. */
  onConnection?: (isOpen: boolean) => void;
}

/** Opens the connection; `url` has the filters in it. */
export type Connect = (headers: Headers, signal: AbortSignal) => Promise<Response>;

/** A record, so that a kind that the description has and this client does not know is an error of the compiler. */
const kinds: Record<Schemas["StreamEventKind"] & StreamEvent["kind"], true> &
  Record<Exclude<Schemas["StreamEventKind"], StreamEvent["kind"]>, never> = {
  event: true,
  result: true,
  tally: true,
  points: true,
  rank: true,
  reset: true,
};

/** The events of a stream that connects again by itself, for as long as somebody iterates. */
export async function* listen(connect: Connect, options: StreamOptions = {}): AsyncGenerator<StreamEvent, void, void> {
  const { signal, silence = 30, firstPause = 1, longestPause = 30, onConnection } = options;
  let place = options.lastEventId ?? "";
  let failures = 0;
  while (!signal?.aborted) {
    let pause: number | undefined;
    const began = Date.now();
    try {
      for await (const blocks of connection(connect, place, silence * 1000, signal, () => onConnection?.(true))) {
        failures = 0;
        for (const block of blocks) {
          const event = understand(block, place);
          // The place moves on once the listener came back for more: what it was handed when it failed comes again.
          if (event) yield event;
          place = block.id ?? place;
        }
      }
      // One that is ended as soon as it is there must not be asked for without a pause.
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
    // The server ends connections now and then: come back at once. Other ends are followed by a pause.
    const milliseconds =
      pause !== undefined ? pause * 1000 : failures && backoff(failures, firstPause * 1000, longestPause * 1000);
    if (milliseconds > 0) await wait(milliseconds, signal).catch(() => {});
  }
}

/** What one connection brings, until it ends or falls silent. */
async function* connection(
  connect: Connect,
  place: string,
  silence: number,
  signal: AbortSignal | undefined,
  opened: () => void,
): AsyncGenerator<Block[], void, void> {
  const own = new AbortController();
  const abort = () => own.abort(signal?.reason);
  signal?.addEventListener("abort", abort, { once: true });
  const watchdog = () => setTimeout(() => own.abort(new Error("The stream fell silent.")), silence);
  let timer = watchdog();
  try {
    const headers = new Headers({ Accept: "text/event-stream" });
    if (place) headers.set("Last-Event-ID", place);
    const response = await connect(headers, own.signal);
    if (!response.ok) throw await MatchdayError.of(response);
    if (!response.body) throw new Error("The stream has no body.");
    opened();
    const reader = response.body.getReader();
    const parser = new EventStreamParser();
    for (let heard = false; ; heard = true) {
      const { done, value } = await reader.read();
      clearTimeout(timer);
      if (done) {
        // A connection that ends before its first byte failed: coming back at once would be a flood.
        if (!heard) throw new Error("The stream ended before it began.");
        return;
      }
      yield parser.push(value);
      // Only the network is watched: a listener may take as long as it wants.
      timer = watchdog();
    }
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
    own.abort();
  }
}

function understand(block: Block, place: string): StreamEvent | undefined {
  // A newer service may tell more than this client knows.
  if (block.data === undefined || !Object.hasOwn(kinds, block.event ?? "")) return undefined;
  const data: unknown = JSON.parse(block.data || "{}");
  return { id: block.id ?? place, kind: block.event, data } as StreamEvent;
}

/** Errors that trying again does not mend. */
function isFinal(error: unknown): boolean {
  if (error instanceof SyntaxError) return true;
  return error instanceof MatchdayError && error.status >= 400 && error.status < 500 && error.status !== 429;
}
