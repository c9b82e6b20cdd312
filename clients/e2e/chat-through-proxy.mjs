// Tests chat with matrix-js-sdk through a proxy of deploy/proxy. deploy/check runs it:
//   node chat-through-proxy.mjs BASE_URL USER_ID DEVICE_ID ROOM_ID, with the access token in CHAT_TOKEN
// Subdomains of example.org resolve to this machine. The user must be a member of the room.
import dns from "node:dns";

const resolve = dns.lookup;
dns.lookup = (host, options, done) =>
  resolve(host.endsWith(".example.org") ? "127.0.0.1" : host, options, done ?? options);

// Required by the library and missing in Node 20.
Promise.withResolvers ??= function withResolvers() {
  let resolve, reject;
  const promise = new this((...both) => {
    [resolve, reject] = both;
  });
  return { promise, resolve, reject };
};
// Silences the library, which logs every step to the console.
const { log, error: report } = console;
for (const level of ["trace", "debug", "info", "log", "warn", "error"]) console[level] = () => {};
const sdk = await import("matrix-js-sdk");

const [baseUrl, userId, deviceId, roomId] = process.argv.slice(2);
const accessToken = process.env.CHAT_TOKEN;
const limit = setTimeout(() => fail("timed out after a minute"), 60_000);
const passed = [];

function fail(message) {
  report(`${message}; passed so far: ${passed.join(", ") || "nothing"}`);
  process.exit(1);
}
function check(holds, what) {
  if (!holds) fail(`failed: ${what}`);
  passed.push(what);
}
/** Resolves with the first event that the predicate accepts. */
function nextEvent(emitter, event, accepts) {
  return new Promise((done) => {
    const listener = (...values) => {
      if (!accepts(...values)) return;
      emitter.off(event, listener);
      done(values);
    };
    emitter.on(event, listener);
  });
}
async function expectRefused(what, promise) {
  const error = await promise.then(
    () => null,
    (reason) => reason,
  );
  check(error?.httpStatus === 403 && error.errcode === "M_FORBIDDEN", `${what} refused`);
}

try {
  const client = sdk.createClient({ baseUrl, userId, deviceId, accessToken, store: new sdk.MemoryStore() });
  await client.initRustCrypto({ useIndexedDB: false });
  const prepared = nextEvent(client, sdk.ClientEvent.Sync, (state) => state === "PREPARED");
  await client.startClient({ initialSyncLimit: 5, pollTimeout: 5_000 });
  await prepared;
  const room = client.getRoom(roomId);
  check(room?.getMyMembership() === "join", "sync");

  const text = `through the proxy ${Date.now()}`;
  // The copy from the sync, not the local echo.
  const echo = nextEvent(
    client,
    sdk.ClientEvent.Event,
    (event) => event.getContent().body === text && event.getId()?.startsWith("$"),
  );
  const { event_id: eventId } = await client.sendTextMessage(roomId, text);
  const [event] = await echo;
  check(event.getId() === eventId, "message");

  const receipt = nextEvent(
    client,
    sdk.ClientEvent.Event,
    (event) => event.getType() === "m.receipt" && Boolean(event.getContent()[eventId]?.["m.read"]?.[userId]),
  );
  await client.sendReadReceipt(event);
  await receipt;
  check(true, "read receipt");

  await client.sendTyping(roomId, true, 5_000);
  await client.redactEvent(roomId, eventId);
  await client.setAccountData("org.example.setting", { on: true });
  check((await client.getAccountDataFromServer("org.example.setting"))?.on, "typing, redaction and account data");

  const bytes = new Uint8Array(300_000).map((_, index) => index % 251);
  const { content_uri: uri } = await client.uploadContent(new Blob([bytes]), { name: "a b..c.bin", type: "image/png" });
  const url = client.mxcUrlToHttp(uri, undefined, undefined, undefined, false, true, true);
  const download = await fetch(url, { headers: { Authorization: `Bearer ${accessToken}` } });
  check(
    download.ok && Buffer.from(bytes).equals(Buffer.from(await download.arrayBuffer())),
    "media upload and download",
  );

  // The library uploads the keys during the sync.
  const uploaded = async () => (await client.downloadKeysForUsers([userId])).device_keys[userId]?.[deviceId];
  let keys = await uploaded();
  while (!keys) {
    await nextEvent(client, sdk.ClientEvent.Sync, () => true);
    keys = await uploaded();
  }
  const own = await client.getCrypto().getOwnDeviceKeys();
  check(keys.keys[`ed25519:${deviceId}`] === own.ed25519, "keys");

  await expectRefused("createRoom", client.createRoom({}));
  await expectRefused("join", client.joinRoom("!elsewhere:example.org"));
  await expectRefused("display name", client.setDisplayName("Somebody Else"));
  client.stopClient();
  clearTimeout(limit);
  log(`matrix-js-sdk: ${passed.join(", ")}`);
  process.exit(0);
} catch (error) {
  fail(String(error?.stack ?? error));
}
