import type { MatrixClient } from "matrix-js-sdk";
import { chatCredentials, matchday, onSessionEnd } from "../session/session.ts";

/** Called when the homeserver refuses the credentials. The chat must then be reopened. */
export const refusals = new Set<() => void>();
let opening: Promise<MatrixClient> | undefined;

/** Returns the connection to the homeserver, which all chats share. The first call opens it. */
export function openChat(): Promise<MatrixClient> {
  opening ??= start().catch((error) => {
    opening = undefined;
    throw error;
  });
  return opening;
}

export function closeChat(): void {
  opening?.then((client) => client.stopClient()).catch(() => {});
  opening = undefined;
}

onSessionEnd.add(closeChat);
// Without this, the library waits up to a minute for its next retry.
window.addEventListener("online", () => {
  opening?.then((client) => client.retryImmediately()).catch(() => {});
});

async function start(): Promise<MatrixClient> {
  // Loaded on demand: the library is large, and only chat needs it.
  const [sdk, discovery, credentials] = await Promise.all([
    import("matrix-js-sdk"),
    matchday.get("/.well-known/matrix/client"),
    chatCredentials.load() ?? newCredentials(),
  ]);
  const client = sdk.createClient({
    baseUrl: discovery["m.homeserver"].base_url,
    userId: credentials.user_id,
    accessToken: credentials.access_token,
    deviceId: credentials.device_id,
    // In memory, so that no messages remain in the browser after the session ends.
    store: new sdk.MemoryStore(),
    disableVoip: true,
  });
  // The event may fire several times for one refused token, but new credentials must be requested only once.
  client.once(sdk.HttpApiEvent.SessionLoggedOut, () => {
    if (chatCredentials.load()?.access_token === credentials.access_token) chatCredentials.save(null);
    closeChat();
    for (const refused of refusals) refused();
  });
  // Match rooms are public and unencrypted, so no keys are needed. For private rooms, call initRustCrypto first.
  await client.startClient({ initialSyncLimit: 30, lazyLoadMembers: true });
  return client;
}

async function newCredentials() {
  const { data } = await matchday.post("/api/auth/matrix-credentials");
  chatCredentials.save(data.matrix_credentials);
  return data.matrix_credentials;
}
