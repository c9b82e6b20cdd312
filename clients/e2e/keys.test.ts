import { randomInt } from "node:crypto";
import { type ChatKeys, Matchday, MatchdayError, memoryStorage } from "@matchday/client";
import type { MatrixClient } from "matrix-js-sdk";
import type { Logger } from "matrix-js-sdk/lib/logger.js";
import { afterAll, beforeAll, expect, test } from "vitest";
import { codeOf, service } from "./stage.js";

// Cross-signing keys with matrix-js-sdk, as docs/chat-in-your-app.md describes: set up, lose the recovery key, reset with a
// code, and verify again.

// Required by the library and missing in Node 20.
if (!("withResolvers" in Promise)) {
  const withResolvers = () => {
    let resolve: unknown;
    let reject: unknown;
    const promise = new Promise((...both) => {
      [resolve, reject] = both;
    });
    return { promise, resolve, reject };
  };
  Object.assign(Promise, { withResolvers });
}
const sdk = await import("matrix-js-sdk");
const { decodeRecoveryKey } = await import("matrix-js-sdk/lib/crypto-api/index.js");

/** Silences the library, which logs every step. */
const logger: Logger = {
  trace: () => {},
  debug: () => {},
  info: () => {},
  warn: () => {},
  error: () => {},
  getChild: () => logger,
};

const phone = `+1555${randomInt(1_000_000, 9_999_999)}`;
const uploadPath = "/_matrix/client/v3/keys/device_signing/upload";
/** Type of the authentication with which the app passes its code to `relay`. */
const codeType = "org.matchday.code";

interface Credentials {
  user_id: string;
  access_token: string;
  device_id: string;
}

/** One session of the user, with its chat device. */
class Device {
  /** Key of the secret storage, derived from the recovery key. */
  secret: Uint8Array<ArrayBuffer> | null = null;

  private constructor(
    readonly matchday: Matchday,
    readonly credentials: Credentials,
    readonly homeserver: string,
    readonly chat: MatrixClient,
  ) {}

  static async logIn(): Promise<Device> {
    const matchday = new Matchday({ baseUrl: service, storage: memoryStorage() });
    await matchday.requestCode(phone);
    const { matrix_credentials } = await matchday.logIn(phone, await codeOf(phone));
    if (!matrix_credentials) throw new Error("chat is unavailable");
    const { "m.homeserver": homeserver } = await matchday.get("/.well-known/matrix/client");
    const { user_id: userId, access_token: accessToken, device_id: deviceId } = matrix_credentials;
    const chat = sdk.createClient({
      baseUrl: homeserver.base_url,
      userId,
      accessToken,
      deviceId,
      logger,
      fetchFn: relay(matchday),
      cryptoCallbacks: {
        getSecretStorageKey: async ({ keys }) => {
          const id = Object.keys(keys)[0];
          return device.secret && id ? [id, device.secret] : null;
        },
        cacheSecretStorageKey: (_id, _info, key) => {
          device.secret = key;
        },
      },
    });
    const device = new Device(matchday, matrix_credentials, homeserver.base_url.replace(/\/$/, ""), chat);
    await chat.initRustCrypto({ useIndexedDB: false });
    const prepared = new Promise<void>((done) => {
      chat.on(sdk.ClientEvent.Sync, (state) => state === "PREPARED" && done());
    });
    await chat.startClient({ initialSyncLimit: 1, pollTimeout: 2_000 });
    await prepared;
    return device;
  }

  get crypto() {
    const crypto = this.chat.getCrypto();
    if (!crypto) throw new Error("no crypto");
    return crypto;
  }

  /** Creates a recovery key that protects the keys of this device. */
  async protect(): Promise<string> {
    const recovery = await this.crypto.createRecoveryKeyFromPassphrase();
    await this.crypto.bootstrapSecretStorage({
      createSecretStorageKey: async () => recovery,
      setupNewSecretStorage: true,
      setupNewKeyBackup: true,
    });
    return recovery.encodedPrivateKey ?? "";
  }

  /** Verifies this device with the recovery key. */
  async verify(recovery: string): Promise<void> {
    this.secret = decodeRecoveryKey(recovery);
    await this.crypto.userHasCrossSigningKeys(this.credentials.user_id, true);
    await this.crypto.bootstrapCrossSigning({});
  }

  /** Whether this device considers another one as signed by the user's present keys. */
  async trusts(other: Device): Promise<boolean> {
    const { user_id, device_id } = other.credentials;
    await this.crypto.userHasCrossSigningKeys(user_id, true);
    const devices = await this.crypto.getUserDeviceInfo([user_id], true);
    expect([...(devices.get(user_id)?.keys() ?? [])]).toContain(device_id);
    return (await this.crypto.getDeviceVerificationStatus(user_id, device_id))?.signedByOwner ?? false;
  }

  /** Public master key on the homeserver. */
  async masterKey(): Promise<string> {
    const { user_id } = this.credentials;
    const response = await this.upload("/_matrix/client/v3/keys/query", { device_keys: { [user_id]: [] } });
    const { master_keys } = (await response.json()) as { master_keys: Record<string, { keys: object }> };
    return Object.keys(master_keys[user_id]?.keys ?? {})[0] ?? "";
  }

  upload(path: string, body: object): Promise<Response> {
    return fetch(this.homeserver + path, {
      method: "POST",
      headers: { Authorization: `Bearer ${this.credentials.access_token}`, "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
  }
}

/** Sends uploads of keys that carry a code to the service, and everything else to the homeserver. */
function relay(matchday: Matchday): typeof fetch {
  return async (resource, init) => {
    if (!String(resource).includes(uploadPath)) return fetch(resource, init);
    const { auth, ...keys } = JSON.parse(String(init?.body)) as ChatKeys & { auth?: { type: string; code: string } };
    if (auth?.type !== codeType) return fetch(resource, init);
    try {
      await matchday.resetKeys(auth.code, keys);
      return Response.json({});
    } catch (error) {
      if (!(error instanceof MatchdayError)) throw error;
      return Response.json({ errcode: `M_${error.code.toUpperCase()}`, error: error.message }, { status: 403 });
    }
  };
}

/** Replaces the keys. `codes` are entered one after the other, until one is accepted. */
async function reset(device: Device, codes: string[]): Promise<void> {
  device.secret = null;
  await device.crypto.resetEncryption(async (makeRequest) => {
    for (const code of codes) {
      try {
        return await makeRequest({ type: codeType, code } as never);
      } catch (error) {
        if (!(error instanceof sdk.MatrixError) || error.errcode !== "M_INVALID_CODE") throw error;
      }
    }
    throw new Error("no code was accepted");
  });
}

const wrong = (code: string) => (code === "000000" ? "000001" : "000000");
const codeOfError = (call: Promise<unknown>) =>
  call.then(
    () => "none",
    (error) => (error as MatchdayError).code,
  );

/** Texts of the messages without a code that were sent to the phone. */
async function notices(): Promise<string[]> {
  const query = new URLSearchParams({ phone, notices: "true" });
  const response = await fetch(`${service}/api/logs/sms?${query}`);
  const { data } = (await response.json()) as { data: { text: string }[] };
  return data.map(({ text }) => text);
}

let laptop: Device;
let tablet: Device;
let lost: string;

beforeAll(async () => {
  laptop = await Device.logIn();
  tablet = await Device.logIn();
});

afterAll(() => {
  laptop.chat.stopClient();
  tablet.chat.stopClient();
});

test("recovery key verifies a second device", async () => {
  await laptop.crypto.bootstrapCrossSigning({ authUploadDeviceSigningKeys: (send) => send(null) });
  lost = await laptop.protect();
  expect(await laptop.trusts(tablet)).toBe(false);
  await tablet.verify(lost);
  expect([await laptop.trusts(tablet), await tablet.trusts(laptop)]).toEqual([true, true]);
});

test("stolen tokens do not replace the keys", async () => {
  const before = await laptop.masterKey();
  const { matchday, credentials } = tablet;
  const key = (usage: string) => ({ user_id: credentials.user_id, usage: [usage], keys: { "ed25519:x": "x" } });
  const keys = {
    master_key: key("master"),
    self_signing_key: key("self_signing"),
    user_signing_key: key("user_signing"),
  };
  // The token of the chat: the homeserver offers no way to authenticate.
  const refused = await tablet.upload(uploadPath, keys);
  expect([refused.status, await refused.json()]).toMatchObject([401, { flows: [] }]);
  // The token of the service, without a code, with a wrong one, and with a code for a login.
  expect(await codeOfError(matchday.resetKeys("123456", keys))).toBe("invalid_code");
  await matchday.requestKeyReset();
  expect(await codeOfError(matchday.resetKeys(wrong(await codeOf(phone)), keys))).toBe("invalid_code");
  await matchday.requestCode(phone);
  expect(await codeOfError(matchday.resetKeys(await codeOf(phone), keys))).toBe("invalid_code");
  expect(await laptop.masterKey()).toBe(before);
  expect(await laptop.trusts(tablet)).toBe(true);
});

test("code replaces lost keys, and devices are verified again", async () => {
  const before = await laptop.masterKey();
  expect(await tablet.matchday.requestKeyReset()).toEqual({ expires_in: 300, phone });
  const code = await codeOf(phone);
  await reset(tablet, [wrong(code), code]);
  const recovery = await tablet.protect();
  expect(await tablet.masterKey()).not.toBe(before);
  expect(await tablet.trusts(tablet)).toBe(true);
  // The other device is still logged in, but not verified.
  expect((await laptop.chat.whoami()).device_id).toBe(laptop.credentials.device_id);
  expect(await tablet.trusts(laptop)).toBe(false);

  await laptop.verify(recovery);
  expect([await laptop.trusts(tablet), await tablet.trusts(laptop)]).toEqual([true, true]);
  await expect(laptop.verify(lost)).rejects.toThrow();
  await expect.poll(notices).toEqual([expect.stringContaining("chat keys were replaced")]);
});

test("used code does not replace the keys again", async () => {
  const before = await laptop.masterKey();
  await expect(reset(laptop, [await codeOf(phone)])).rejects.toThrow("no code was accepted");
  expect(await tablet.masterKey()).toBe(before);
});
