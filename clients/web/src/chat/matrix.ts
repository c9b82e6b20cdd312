import type { MatrixClient } from "matrix-js-sdk";
import { chatCredentials, endings, matchday } from "../session/session.ts";

/** Called when the homeserver refuses the credentials, and the chat must be opened again. */
export const refusals = new Set<() => void>();
let opening: Promise<MatrixClient> | undefined;

/** The connection to the homeserver, one for the whole app. It is made when the first chat is opened. */
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

endings.add(closeChat);
// Otherwise the library waits for its next try, up to a minute.
window.addEventListener("online", () => {
  opening?.then((client) => client.retryImmediately()).catch(() => {});
});

async function start(): Promise<MatrixClient> {
  // The library is large, and only those who chat need it.
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
    // Not the one that leaves something in the browser when the session is over.
    store: new sdk.MemoryStore(),
    disableVoip: true,
  });
  // The homeserver refuses the token; this may come several times for one token, and new ones are asked for once.
  client.once(sdk.HttpApiEvent.SessionLoggedOut, () => {
    if (chatCredentials.load()?.access_token === credentials.access_token) chatCredentials.save(null);
    closeChat();
    for (const refused of refusals) refused();
  });
  // Rooms of matches are public and not encrypted: no keys are needed here. Private rooms need initRustCrypto first.
  await client.startClient({ initialSyncLimit: 30, lazyLoadMembers: true });
  return client;
}

async function newCredentials() {
  const { data } = await matchday.post("/api/auth/matrix-credentials");
  chatCredentials.save(data.matrix_credentials);
  return data.matrix_credentials;
}
