import {
  type Arguments,
  type BodyOf,
  type CallOf,
  callOf,
  type Fetch,
  type Init,
  type PathsWith,
  type RetryLimits,
  wait,
  withRetries,
} from "@matchday/client/transport";
import createClient, { type Client } from "openapi-fetch";
import type { FixtureDocument } from "./fixtures.js";
import type { paths } from "./schema.js";

export interface ServerClientOptions {
  /** Base URL of the service, like `https://api.example.org`. */
  baseUrl: string;
  /** Server key, `mk_…`. */
  key: string;
  /** Seconds after which a try without a complete response counts as failed. Default: 30. */
  timeout?: number;
  /** Default: 6 retries that start within 60 seconds, with pauses from 0.5 to 10 seconds. */
  retry?: Partial<RetryLimits>;
}

/** Body of a successful response. */
export type ResponseBody<Path extends keyof paths, M extends "get" | "post" | "put" | "delete"> = BodyOf<
  paths,
  Path,
  M
>;
/** Sends a request to a path of the OpenAPI description. */
export type Call<M extends "get" | "put" | "delete"> = CallOf<paths, M>;

type PostPath = PathsWith<paths, "post">;
type HeaderOf<Operation> = Operation extends { parameters: { header?: infer Header } } ? NonNullable<Header> : never;
type TakesKey<Path extends PostPath> = [HeaderOf<paths[Path]["post"]>] extends [never]
  ? false
  : "Idempotency-Key" extends keyof HeaderOf<paths[Path]["post"]>
    ? true
    : false;
type KeylessPath = { [Path in PostPath]: TakesKey<Path> extends true ? never : Path }[PostPath];
type PostInit<Path extends PostPath> = Init<paths, Path, "post"> &
  (TakesKey<Path> extends true
    ? {
        /** Identifies the change in your system, like an order number. The service performs it once. Default: a new UUID. */
        idempotencyKey?: string;
      }
    : unknown);
/** Sends a POST request to a path of the OpenAPI description. */
export type PostCall = <Path extends PostPath>(
  path: Path,
  ...init: Arguments<PostInit<Path>>
) => Promise<ResponseBody<Path, "post">>;

/** An entry of the log of facts. Ignore types that you do not know. */
export type Fact = ResponseBody<"/api/server/v1/facts", "get">["data"][number];

export interface FactsPage {
  /** Empty only on the first page, if there are no facts after the position. */
  facts: Fact[];
  /** Position after these facts. Store it in the same transaction as the facts. */
  nextAfter: string;
}

export interface FactsOptions {
  /** Maximum number of facts on a page, from 1 to 1000. Default: 100. */
  perPage?: number;
  /** Ends the iteration, without an error. */
  signal?: AbortSignal;
  /** Seconds between two requests at the end of the log. Default: 3. */
  interval?: number;
}

export interface ImportOptions {
  /** Report the changes and faults without writing anything. */
  dryRun?: boolean;
  /** Default: a new UUID. A dry run and the import after it need different keys. */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

/** Changes of an import, or of a dry run. */
export type ImportReport = ResponseBody<"/api/server/v1/catalogue/import", "post">["data"];

const defaultRetry: RetryLimits = { times: 6, firstPause: 0.5, longestPause: 10, longestTime: 60 };

/** POST requests that change nothing and take no idempotency key. Compilation fails if the OpenAPI description has others. */
const keyless: ReadonlySet<string> = new Set(
  Object.keys({ "/api/server/v1/users/lookup": true } satisfies Record<KeylessPath, true>),
);

/** Creates a client of the server API. Throws `TypeError` if the URL or the key cannot be valid. */
export function createServerClient(options: ServerClientOptions): ServerClient {
  return new ServerClient(options);
}

/** Client of the server API with one key. */
export class ServerClient {
  /**
   * The underlying openapi-fetch client, with the same key, idempotency keys and retries. It returns
   * `{data, error, response}` and throws only if there is no response.
   */
  readonly api: Client<paths, "application/json">;
  readonly get: Call<"get">;
  readonly post: PostCall;
  readonly put: Call<"put">;
  readonly delete: Call<"delete">;
  readonly #baseUrl: string;

  constructor({ baseUrl, key, timeout = 30, retry }: ServerClientOptions) {
    this.#baseUrl = checkedUrl(baseUrl);
    checkKey(key);
    this.api = createClient<paths, "application/json">({
      baseUrl: this.#baseUrl,
      // The service never redirects. Following a redirect could repeat a POST as a GET.
      redirect: "manual",
      // Every request can be repeated: PUT and DELETE are idempotent, and POST has a key or changes nothing.
      fetch: withRetries(sendWithin(timeout), { ...defaultRetry, ...retry }, { isRepeatable: () => true }),
    });
    // The key is only in this closure, so that no property of the client shows it in a log.
    this.api.use({
      onRequest: ({ request, schemaPath }) => {
        request.headers.set("Authorization", `Bearer ${key}`);
        if (request.method !== "POST" || keyless.has(schemaPath)) return;
        if (!request.headers.has("Idempotency-Key")) request.headers.set("Idempotency-Key", crypto.randomUUID());
      },
    });
    this.get = callOf<paths, "get">(this.api, "GET");
    this.post = withKeyOption(callOf<paths, "post">(this.api, "POST"));
    this.put = callOf<paths, "put">(this.api, "PUT");
    this.delete = callOf<paths, "delete">(this.api, "DELETE");
  }

  /**
   * Iterates over the pages of the log of facts after a position; `latest` is the end of the log. Without a position, starts
   * with the oldest fact that is kept. At the end of the log, polls for new facts; `break` or the signal ends the
   * iteration.
   *
   * The next page is requested when the loop asks for it. A caller that stores `nextAfter` in the same transaction as the
   * facts, and starts again from it after a failure, processes each fact once.
   */
  async *facts(after?: string | null, options: FactsOptions = {}): AsyncGenerator<FactsPage, void, void> {
    const { perPage, signal, interval = 3 } = options;
    let position = after ?? undefined;
    while (!signal?.aborted) {
      const query = {
        ...(position !== undefined && { after: position }),
        ...(perPage !== undefined && { per_page: perPage }),
      };
      try {
        const { data, meta } = await this.get("/api/server/v1/facts", {
          params: { query },
          ...(signal && { signal }),
        });
        const hasMoved = meta.next_after !== position;
        position = meta.next_after;
        // The first response to `latest` has no facts, but a position to store.
        if (data.length > 0 || hasMoved) yield { facts: data, nextAfter: position };
        if (!meta.more) await wait(interval * 1000, signal);
      } catch (error) {
        if (signal?.aborted) return;
        throw error;
      }
    }
  }

  /** Imports a fixture document. If the document has faults, throws an error with `errors` by place, and writes nothing. */
  async importFixtures(document: FixtureDocument, options: ImportOptions = {}): Promise<ImportReport> {
    const { dryRun = false, idempotencyKey, signal } = options;
    // The OpenAPI description does not describe the document.
    const init = {
      params: { query: { dry_run: dryRun } },
      body: document,
      ...(idempotencyKey !== undefined && { idempotencyKey }),
      ...(signal && { signal }),
    } as unknown as PostInit<"/api/server/v1/catalogue/import">;
    return (await this.post("/api/server/v1/catalogue/import", init)).data;
  }

  toString(): string {
    return `ServerClient(${this.#baseUrl})`;
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }
}

function checkedUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== "https:" && url?.protocol !== "http:") {
    throw new TypeError("baseUrl must be a URL like https://api.example.org.");
  }
  // `toString` shows the URL.
  if (url.username || url.password) throw new TypeError("baseUrl must not contain a password.");
  return text.replace(/\/+$/, "");
}

/** Without this check, an invalid character would fail in `Headers`, with a message that contains the key. */
function checkKey(key: string): void {
  if (typeof key !== "string" || !/^mk_[0-9A-Za-z_]+$/.test(key)) {
    throw new TypeError("key must be a server key: mk_, then letters, digits and underscores.");
  }
}

/** Moves the option `idempotencyKey` of a call to its header. */
function withKeyOption(post: CallOf<paths, "post">): PostCall {
  const send = post as unknown as (path: string, init?: object) => Promise<unknown>;
  const call = (path: string, init: { idempotencyKey?: string; params?: { header?: object } } = {}) => {
    const { idempotencyKey, ...rest } = init;
    if (idempotencyKey === undefined) return send(path, rest);
    const header = { ...rest.params?.header, "Idempotency-Key": idempotencyKey };
    return send(path, { ...rest, params: { ...rest.params, header } });
  };
  return call as unknown as PostCall;
}

/**
 * Sends a request and reads the whole response within this time. A connection that is lost inside the body then fails the
 * try, and the request is retried.
 */
function sendWithin(seconds: number): Fetch {
  return async (request) => {
    const own = new AbortController();
    const abort = () => own.abort(request.signal.reason);
    if (request.signal.aborted) abort();
    request.signal.addEventListener("abort", abort, { once: true });
    const late = () => own.abort(new Error(`The service did not respond within ${seconds} seconds.`));
    const timer = setTimeout(late, seconds * 1000);
    try {
      // Resolved for each request, because monitoring tools replace `fetch` after this module was loaded.
      const response = await globalThis.fetch(request, { signal: own.signal });
      const { status, statusText, headers } = response;
      const body = await response.arrayBuffer();
      return new Response(body.byteLength > 0 ? body : null, { status, statusText, headers });
    } finally {
      clearTimeout(timer);
      request.signal.removeEventListener("abort", abort);
    }
  };
}
