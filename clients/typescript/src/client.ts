import createClient, { type Client, type Middleware } from "openapi-fetch";
import { type BodyOf, type CallOf, callOf, type Method } from "./calls.js";
import { MatchdayError } from "./error.js";
import { defaultRetry, type Fetch, type InLine, type RetrySettings, withRetries } from "./retry.js";
import type { components, paths } from "./schema.js";
import { memoryStorage, type TokenStorage } from "./storage.js";
import { cannotStream, listen, type StreamEvent, type StreamFilters, type StreamOptions } from "./stream.js";

export interface MatchdayOptions {
  /** Base URL of the service, like `https://api.example.org`. Default: the origin of the page. */
  baseUrl?: string;
  /** Storage of the session token. Default: in memory. */
  storage?: TokenStorage;
  /** Preferred languages of text messages, sent as `Accept-Language`. Browsers send it without this option. */
  language?: string;
  /** Called when the service reports that the session has ended, after the token was cleared. */
  onLoggedOut?: () => void;
  /** Called when the service refuses a request because the account is suspended. The token is kept, as the suspension may end. */
  onSuspended?: () => void;
  retry?: Partial<RetrySettings>;
  /**
   * Replaces the global `fetch`, which is looked up for each request, because monitoring tools replace it. The live stream needs
   * one whose responses have a `body`, like that of `expo/fetch` in React Native.
   */
  fetch?: (url: string, init: RequestInit) => Promise<Response>;
  /**
   * Returns a new unique idempotency key: 1 to 255 printable ASCII characters, like a UUID. Default: 128 random bits from the
   * global `crypto`, which React Native lacks.
   */
  randomKey?: () => string;
}

/** Body of a successful response. */
export type ResponseBody<Path extends keyof paths, M extends Method> = BodyOf<paths, Path, M>;
/** Sends a request to a path of the OpenAPI description. */
export type Call<M extends Method> = CallOf<paths, M>;

export type Login = components["schemas"]["LoginData"];
/** The body of the Matrix request `POST /keys/device_signing/upload`, without its authentication. */
export type ChatKeys = Omit<components["schemas"]["KeyReset"], "code">;

/** Paths that need no session: the token is not sent to them. */
const withoutToken: ReadonlySet<string> = new Set<keyof paths>([
  "/api/code/request",
  "/api/code/verify",
  "/api/auth/login",
  "/api/auth/username/check",
  "/api/auth/username/generate",
  "/api/logs/sms",
  "/api/seals",
  "/api/seals/{sequence}",
  "/.well-known/matrix/client",
]);

/** Client of one service, with at most one session. */
export class Matchday {
  /**
   * The underlying openapi-fetch client, with the same token, idempotency keys and retries. It returns
   * `{data, error, response}` and throws only if there is no response.
   */
  readonly api: Client<paths, "application/json">;
  readonly get: Call<"get">;
  readonly post: Call<"post">;
  readonly put: Call<"put">;
  readonly patch: Call<"patch">;
  readonly delete: Call<"delete">;
  readonly #options: MatchdayOptions;
  readonly #storage: TokenStorage;
  /** `undefined` until it is loaded from the storage. */
  #token: string | null | undefined;

  constructor(options: MatchdayOptions = {}) {
    this.#options = options;
    this.#storage = options.storage ?? memoryStorage();
    this.api = createClient<paths, "application/json">({
      baseUrl: this.#base(),
      fetch: withRetries(this.#send, this.#retry()),
    });
    this.api.use(this.#middleware());
    this.get = callOf<paths, "get">(this.api, "GET");
    this.post = callOf<paths, "post">(this.api, "POST");
    this.put = callOf<paths, "put">(this.api, "PUT");
    this.patch = callOf<paths, "patch">(this.api, "PATCH");
    this.delete = callOf<paths, "delete">(this.api, "DELETE");
  }

  /** Returns the token of the session, or `null` when logged out. */
  async token(): Promise<string | null> {
    if (this.#token === undefined) this.#token = await this.#storage.load();
    return this.#token;
  }

  /**
   * Requests a login code, which is valid for `expires_in` seconds. With the notice `codes_limited`, the service sends a
   * code only to numbers that were used before.
   */
  async requestCode(phone: string): Promise<{ expires_in: number; notice?: string }> {
    return (await this.post("/api/code/request", { body: { phone } })).data;
  }

  /** Logs in with a code. The first login creates the account, with this username or a generated one. */
  async logIn(phone: string, code: string, options: { username?: string } = {}): Promise<Login> {
    const { data } = await this.post("/api/code/verify", { body: { phone, code, ...options } });
    await this.#storage.save(data.token);
    this.#token = data.token;
    return data;
  }

  /** Ends the session. The stored token is cleared even if the service cannot be reached. */
  async logOut(): Promise<void> {
    const token = await this.token();
    if (!token) return;
    try {
      await this.post("/api/auth/logout");
    } catch (error) {
      // 401: the session has already ended.
      if (!(error instanceof MatchdayError && error.status === 401)) throw error;
    } finally {
      await this.#clear(token);
    }
  }

  /** Deletes the account permanently, with the code sent by `POST /api/auth/me/deletion`, and clears the token. */
  async deleteAccount(code: string): Promise<void> {
    const token = await this.token();
    await this.delete("/api/auth/me", { body: { code } });
    if (token) await this.#clear(token);
  }

  /** Requests a code that confirms a reset of the chat keys. It is sent to the phone of the account. */
  async requestKeyReset(): Promise<ResponseBody<"/api/auth/matrix-keys/reset/initiate", "post">["data"]> {
    return (await this.post("/api/auth/matrix-keys/reset/initiate")).data;
  }

  /**
   * Replaces the chat keys of the user, with the code sent by `requestKeyReset`. When this resolves, the homeserver has the
   * new keys. The user's devices stay logged in and become unverified.
   */
  async resetKeys(code: string, { master_key, self_signing_key, user_signing_key }: ChatKeys): Promise<void> {
    const body = { code, master_key, self_signing_key, user_signing_key };
    await this.post("/api/auth/matrix-keys/reset", { body });
  }

  /**
   * Joins a room. While the room is busy (`room_busy`), retries after each `Retry-After` with the same idempotency key, for
   * at most `retry.longestLine` seconds, and calls `onWaiting` before each pause. A refused join stays in the service's
   * queue and may be done before the retry, so `already_a_member` is a success then.
   */
  async joinRoom(
    room: string,
    options: { signal?: AbortSignal; onWaiting?: (line: InLine) => void } = {},
  ): Promise<ResponseBody<"/api/auth/chat-rooms/{room}/join", "post">> {
    const { signal, onWaiting } = options;
    let hasWaited = false;
    const waits = (line: InLine) => {
      hasWaited = true;
      onWaiting?.(line);
    };
    try {
      return await this.post("/api/auth/chat-rooms/{room}/join", {
        params: { path: { room } },
        fetch: withRetries(this.#send, this.#retry(), { onWaiting: waits }),
        ...(signal && { signal }),
      });
    } catch (error) {
      if (!hasWaited || !(error instanceof MatchdayError) || error.code !== "already_a_member") throw error;
      const room_id = await this.#joinedStand(room, signal);
      return { message: "You have joined the room.", data: { room_id, membership: "join" } };
    }
  }

  /** Returns the room itself if the caller is a member of it, and otherwise the stand of the same match that they joined. */
  async #joinedStand(room: string, signal: AbortSignal | undefined): Promise<string> {
    const rooms = async (query: { joined?: boolean; event_id?: number }) => {
      const params = { query: { ...query, per_page: 100 } };
      return (await this.get("/api/auth/chat-rooms", { params, ...(signal && { signal }) })).data;
    };
    const joined = await rooms({ joined: true });
    if (joined.some(({ room_id }) => room_id === room)) return room;
    // The list does not contain the match of the requested room, so look for the room among those of each match.
    for (const { room_id, event_id, stand } of joined) {
      if (stand === null || event_id === null) continue;
      if ((await rooms({ event_id })).some((other) => other.room_id === room)) return room_id;
    }
    return room;
  }

  /**
   * Sends a text message to a room. A caller who is not a member joins first, so `room_id` of the response may be another
   * stand. While the room is busy, waits in line like `joinRoom`. To send the same message again after a failure, pass the
   * same `key`: it is sent once.
   */
  async sendMessage(
    room: string,
    body: string,
    options: { key?: string; signal?: AbortSignal; onWaiting?: (line: InLine) => void } = {},
  ): Promise<ResponseBody<"/api/auth/chat-rooms/{room}/messages", "post">["data"]> {
    const { key = this.#randomKey(), signal, onWaiting } = options;
    const { data } = await this.post("/api/auth/chat-rooms/{room}/messages", {
      params: { path: { room }, header: { "Idempotency-Key": key } },
      body: { body },
      fetch: withRetries(this.#send, this.#retry(), { ...(onWaiting && { onWaiting }) }),
      ...(signal && { signal }),
    });
    return data;
  }

  /** Iterates over the live stream. Reconnects automatically; ends with `break` or the signal. */
  stream(filters: StreamFilters = {}, options: StreamOptions = {}): AsyncGenerator<StreamEvent, void, void> {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(filters)) {
      if (value !== undefined) parameters.set(name, String(value));
    }
    // Not `size`, which browsers before 2023 and React Native lack.
    const query = parameters.toString();
    const url = `${this.#base()}/api/auth/stream${query && `?${query}`}`;
    return listen(async (headers, signal) => {
      const { fetch } = this.#options;
      // React Native's `fetch` would wait for the end of the stream before it returns the response.
      if (!fetch && !new Response(" ").body) throw cannotStream();
      const token = await this.token();
      if (token) headers.set("Authorization", `Bearer ${token}`);
      const response = await (fetch ?? globalThis.fetch)(url, { headers, signal, cache: "no-store" });
      if (response.status === 401 && token) await this.#endSession(token);
      if (response.status === 403) await this.#checkSuspension(response);
      return response;
    }, options);
  }

  readonly #send: Fetch = async (request) => {
    const { fetch } = this.#options;
    if (!fetch) return globalThis.fetch(request);
    // Not every `fetch` accepts a `Request`.
    const { url, method, headers, signal } = request;
    if (method === "GET") return fetch(url, { method, headers, signal });
    const isJson = headers.get("Content-Type")?.startsWith("application/json");
    const body = isJson ? await request.text() : await request.blob();
    return fetch(url, { method, headers, signal, ...((typeof body === "string" ? body : body.size) && { body }) });
  };

  #randomKey(): string {
    return (this.#options.randomKey ?? randomKey)();
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
        const token = withoutToken.has(schemaPath) ? null : await this.token();
        if (!token) return;
        request.headers.set("Authorization", `Bearer ${token}`);
        // With a key, the service processes the request once, even if it is retried.
        if (request.method === "POST" && !request.headers.has("Idempotency-Key")) {
          request.headers.set("Idempotency-Key", this.#randomKey());
        }
      },
      onResponse: async ({ request, response }) => {
        const sent = request.headers.get("Authorization")?.replace("Bearer ", "");
        if (response.status === 403 && sent) await this.#checkSuspension(response);
        if (response.status !== 401 || !sent) return;
        // A wrong login code is also a 401, but does not end the session.
        const { code } = await MatchdayError.of(response.clone());
        if (code === "unauthenticated") await this.#endSession(sent);
      },
    };
  }

  async #checkSuspension(response: Response): Promise<void> {
    const { code } = await MatchdayError.of(response.clone());
    if (code === "account_suspended") this.#options.onSuspended?.();
  }

  /** Handles a token that the service no longer accepts. */
  async #endSession(token: string): Promise<void> {
    if (await this.#clear(token)) this.#options.onLoggedOut?.();
  }

  /** Clears the stored token and returns true, unless a later login has already replaced it. */
  async #clear(token: string): Promise<boolean> {
    if (this.#token !== token) return false;
    this.#token = null;
    await this.#storage.clear();
    return true;
  }
}

/** Random idempotency key. `crypto.randomUUID` exists only in secure contexts (HTTPS or localhost). */
function randomKey(): string {
  const { crypto } = globalThis;
  if (!crypto?.getRandomValues) throw new TypeError("This runtime has no random numbers: set the option randomKey.");
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
