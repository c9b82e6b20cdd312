import createClient, { type Client, type FetchResponse, type MaybeOptionalInit, type Middleware } from "openapi-fetch";
import { MatchdayError } from "./error.js";
import { defaultRetry, type Fetch, type InLine, type RetrySettings, withRetries } from "./retry.js";
import type { components, paths } from "./schema.js";
import { memoryStorage, type TokenStorage } from "./storage.js";
import { listen, type StreamEvent, type StreamFilters, type StreamOptions } from "./stream.js";

export interface MatchdayOptions {
  /** Where the service is, like `https://api.example.org`; empty: where the page came from. */
  baseUrl?: string;
  /** Where the token is kept; in memory if nothing else is said. */
  storage?: TokenStorage;
  /** The languages of text messages, as in `Accept-Language`. Browsers send their own. */
  language?: string;
  /** Is called when the service says that the session is over. The token is gone by then. */
  onLoggedOut?: () => void;
  /** Is called when the service refuses a request because the account is suspended. The token is kept: the suspension may end. */
  onSuspended?: () => void;
  retry?: Partial<RetrySettings>;
}

type Method = "get" | "post" | "put" | "delete";
type PathsWith<M extends Method> = {
  [Path in keyof paths]: paths[Path] extends { [Key in M]: { responses: unknown } } ? Path : never;
}[keyof paths];
type Init<Path extends keyof paths, M extends Method> = MaybeOptionalInit<paths[Path], M>;
type Arguments<I> = Record<never, never> extends I ? [init?: I] : [init: I];
/** What the service answers when all is well. */
export type Answer<Path extends keyof paths, M extends Method> =
  paths[Path][M] extends Record<string | number, unknown>
    ? NonNullable<FetchResponse<paths[Path][M], object, "application/json">["data"]>
    : never;
/** A call by its path in the description of the interface. */
export type Call<M extends Method> = <Path extends PathsWith<M>>(
  path: Path,
  ...init: Arguments<Init<Path, M>>
) => Promise<Answer<Path, M>>;

export type Login = components["schemas"]["LoginData"];

/** For those who have no token yet: none is sent to these. */
const open: ReadonlySet<string> = new Set<keyof paths>([
  "/api/code/request",
  "/api/code/verify",
  "/api/auth/login",
  "/api/auth/username/check",
  "/api/auth/username/generate",
  "/api/logs/sms",
  "/.well-known/matrix/client",
]);

/** Looked up at each call, because tools that watch requests replace it. */
const send: Fetch = (request) => globalThis.fetch(request);

/** A service, and a session with it. */
export class Matchday {
  /** The bare client: answers `{data, error, response}`, and throws only if there is no answer. It has token, key and retries too. */
  readonly api: Client<paths, "application/json">;
  readonly get: Call<"get">;
  readonly post: Call<"post">;
  readonly put: Call<"put">;
  readonly delete: Call<"delete">;
  readonly #options: MatchdayOptions;
  readonly #storage: TokenStorage;
  /** `undefined` until the storage was asked. */
  #token: string | null | undefined;

  constructor(options: MatchdayOptions = {}) {
    this.#options = options;
    this.#storage = options.storage ?? memoryStorage();
    this.api = createClient<paths, "application/json">({
      baseUrl: this.#base(),
      fetch: withRetries(send, this.#retry()),
    });
    this.api.use(this.#middleware());
    this.get = this.#call("GET");
    this.post = this.#call("POST");
    this.put = this.#call("PUT");
    this.delete = this.#call("DELETE");
  }

  /** The token of the session, if there is one. */
  async token(): Promise<string | null> {
    if (this.#token === undefined) this.#token = await this.#storage.load();
    return this.#token;
  }

  /**
   * Requests a code, which is valid for `expires_in` seconds. With the notice `codes_limited`, only numbers that were used
   * before get one.
   */
  async requestCode(phone: string): Promise<{ expires_in: number; notice?: string }> {
    return (await this.post("/api/code/request", { body: { phone } })).data;
  }

  /** Logs in with a code, or registers: then with this username, or with one that is made up. */
  async logIn(phone: string, code: string, options: { username?: string } = {}): Promise<Login> {
    const { data } = await this.post("/api/code/verify", { body: { phone, code, ...options } });
    await this.#storage.save(data.token);
    this.#token = data.token;
    return data;
  }

  /** Ends the session, here at once and at the service if it answers. */
  async logOut(): Promise<void> {
    const token = await this.token();
    if (!token) return;
    try {
      await this.post("/api/auth/logout");
    } catch (error) {
      // A session that is over already is what was wanted.
      if (!(error instanceof MatchdayError && error.status === 401)) throw error;
    } finally {
      await this.#forget(token);
    }
  }

  /** Deletes the account for good, with the code that `POST /api/auth/me/deletion` had sent, and forgets the session. */
  async deleteAccount(code: string): Promise<void> {
    const token = await this.token();
    await this.delete("/api/auth/me", { body: { code } });
    if (token) await this.#forget(token);
  }

  /**
   * Joins a room, and waits in line while the chat is busy (`room_busy`): `onWaiting` is called before each pause. The
   * same request is sent again after `Retry-After`, with the same key, for `retry.longestLine` seconds at most.
   */
  async joinRoom(
    room: string,
    options: { signal?: AbortSignal; onWaiting?: (line: InLine) => void } = {},
  ): Promise<Answer<"/api/auth/chat-rooms/{room}/join", "post">> {
    const { signal, onWaiting } = options;
    return this.post("/api/auth/chat-rooms/{room}/join", {
      params: { path: { room } },
      fetch: withRetries(send, this.#retry(), onWaiting),
      ...(signal && { signal }),
    });
  }

  /** What happens, as it happens. Connects again by itself; ends with `break`, or with the signal. */
  stream(filters: StreamFilters = {}, options: StreamOptions = {}): AsyncGenerator<StreamEvent, void, void> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(filters)) {
      if (value !== undefined) query.set(name, String(value));
    }
    const url = `${this.#base()}/api/auth/stream${query.size > 0 ? `?${query}` : ""}`;
    return listen(async (headers, signal) => {
      const token = await this.token();
      if (token) headers.set("Authorization", `Bearer ${token}`);
      const response = await globalThis.fetch(url, { headers, signal, cache: "no-store" });
      if (response.status === 401 && token) await this.#over(token);
      if (response.status === 403) await this.#refused(response);
      return response;
    }, options);
  }

  #retry(): RetrySettings {
    return { ...defaultRetry, ...this.#options.retry };
  }

  #base(): string {
    return (this.#options.baseUrl ?? "").replace(/\/+$/, "");
  }

  #middleware(): Middleware {
    return {
      onRequest: async ({ request, schemaPath }) => {
        if (this.#options.language) request.headers.set("Accept-Language", this.#options.language);
        const token = open.has(schemaPath) ? null : await this.token();
        if (!token) return;
        request.headers.set("Authorization", `Bearer ${token}`);
        // With a key the service does it once, however often the network has it asked.
        if (request.method === "POST" && !request.headers.has("Idempotency-Key")) {
          request.headers.set("Idempotency-Key", randomKey());
        }
      },
      onResponse: async ({ request, response }) => {
        const sent = request.headers.get("Authorization")?.replace("Bearer ", "");
        if (response.status === 403 && sent) await this.#refused(response);
        if (response.status !== 401 || !sent) return;
        // A wrong code is 401 too, and ends no session.
        const { code } = await MatchdayError.of(response.clone());
        if (code === "unauthenticated") await this.#over(sent);
      },
    };
  }

  async #refused(response: Response): Promise<void> {
    const { code } = await MatchdayError.of(response.clone());
    if (code === "account_suspended") this.#options.onSuspended?.();
  }

  /** The service says that this token is good no more. */
  async #over(token: string): Promise<void> {
    if (await this.#forget(token)) this.#options.onLoggedOut?.();
  }

  /** Whether it was the one that is kept: somebody may have logged in again meanwhile. */
  async #forget(token: string): Promise<boolean> {
    if (this.#token !== token) return false;
    this.#token = null;
    await this.#storage.clear();
    return true;
  }

  #call<M extends Method>(method: Uppercase<M>): Call<M> {
    const send = this.api[method] as unknown as (
      ...call: unknown[]
    ) => Promise<{ data?: unknown; error?: unknown; response: Response }>;
    return (async (...call: unknown[]) => {
      const { data, error, response } = await send(...call);
      if (!response.ok) throw MatchdayError.from(response, error);
      return data;
    }) as Call<M>;
  }
}

/** `crypto.randomUUID` is only there on pages that came by HTTPS or from this machine. */
function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
