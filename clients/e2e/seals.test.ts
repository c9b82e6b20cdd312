import { execFile } from "node:child_process";
import { randomInt } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import type { Locator, Page, Route } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { check } from "./look.js";
import { type ApiFan, type Device, logIn, logInByApi, runCommand, Stage, service } from "./stage.js";

// Sealed predictions, in order: each test builds on the state that the previous ones left. Xia uses a phone, Yan a desktop and
// Zoe the API. SHOTS_TO=FOLDER saves screenshots.
const run = randomInt(100_000, 999_999);
const phone = { width: 390, height: 844 };
const small = { width: 320, height: 700 };
const desktop = { width: 1280, height: 900 };
const cup = `Signet Cup ${run}`;
const [wax, ink] = ["Waxham Rangers", "Inkwell Town"];
const [first, second] = [/Waxham Rangers.*Inkwell Town/, /Inkwell Town.*Waxham Rangers/];
const newPhone = () => `+1555${randomInt(1_000_000, 9_999_999)}`;

let stage: Stage;
let xia: Device;
let yan: Device;
let zoe: ApiFan;

interface Seal {
  sequence: number;
  event_id: number;
  count: number;
  hash: string;
}

const shown = (locator: Locator, timeout = 20_000) => locator.waitFor({ state: "visible", timeout });
const form = (page: Page) => page.getByRole("form", { name: "Your prediction" });
const own = (page: Page) => page.getByRole("region", { name: "Your prediction" });
const verify = (page: Page) => own(page).getByRole("button", { name: /^Verify/ });
/** Times of imported matches, in whole seconds. */
const time = (offset: number) => new Date(Date.now() + offset).toISOString().replace(/\.\d+Z$/, "Z");
const tomorrow = time(86_400_000);
/** First match after it has started. */
let live: object;
/** URL of the second match. */
let later: string;
const slugOf = (name: string) => `${name.toLowerCase().replaceAll(" ", "_")}_${run}`;

/** Imports the two matches of the cup, with changes to each. */
async function importCup(changes: { first?: object; second?: object } = {}): Promise<void> {
  const match = { venue: "Signet Park", start_time: tomorrow, status: "scheduled", round: 1 };
  await runCommand(
    ["fixtures", "import", "-"],
    JSON.stringify({
      sport: { slug: "football", name: "Football" },
      tournament: { slug: `signet_${run}`, name: cup },
      teams: [wax, ink].map((name) => ({ slug: slugOf(name), name, country: "Anywhere", founded: 1900 })),
      matches: [
        { ...match, key: "first", home: slugOf(wax), away: slugOf(ink), ...changes.first },
        { ...match, key: "second", home: slugOf(ink), away: slugOf(wax), ...changes.second },
      ],
    }),
  );
}

async function open(page: Page, match: RegExp): Promise<void> {
  await page.goto("/#/");
  await page.getByRole("combobox", { name: "Tournament" }).selectOption({ label: cup });
  await page.getByRole("link", { name: match }).filter({ visible: true }).first().click();
  await shown(page.getByRole("heading", { level: 1, name: match }));
}

/** Shows the prediction of a live match. On a phone, the page switches to the chat when the match starts. */
async function showPrediction(page: Page): Promise<void> {
  await shown(page.getByRole("region", { name: "Score" }).getByText("Live", { exact: true }));
  if (page === xia.page) await page.getByRole("radio", { name: "Prediction" }).check();
}

async function predict(page: Page, match: RegExp, winner: string): Promise<void> {
  await open(page, match);
  await form(page).getByRole("radio", { name: winner }).first().check();
  await form(page).getByRole("button", { name: "Save prediction" }).click();
  await shown(form(page).getByText(`Saved: ${winner}, 50%.`));
}

async function latestSeal(): Promise<Seal> {
  const response = await fetch(`${service}/api/seals?per_page=1000`);
  const { data } = (await response.json()) as { data: Seal[] };
  return data.at(-1) as Seal;
}

/** Changes the JSON of a response of the service on its way to the page, until the page is unrouted. */
function tamper(page: Page, url: string, change: (body: { data: never }) => void): Promise<unknown> {
  return page.route(url, async (route: Route) => {
    const response = await route.fetch();
    const body = await response.json();
    change(body);
    await route.fulfill({ response, json: body });
  });
}

const refuse = (page: Page, code: string, message: string) =>
  page.route("**/proof", (route) => route.fulfill({ status: 409, json: { code, message, request_id: "r-1" } }));

beforeAll(async () => {
  stage = await Stage.open();
  await importCup();
  xia = await stage.device({ viewport: phone, reducedMotion: "reduce" });
  yan = await stage.device({
    viewport: desktop,
    reducedMotion: "reduce",
    permissions: ["clipboard-write", "clipboard-read"],
  });
  await logIn(xia.page, newPhone(), `xia.${run}`);
  await logIn(yan.page, newPhone(), `yan.${run}`);
  zoe = await logInByApi(newPhone(), `zoe.${run}`);
}, 180_000);
afterAll(() => stage?.close());

describe("sealed match", () => {
  test("seal appears without a reload when the match starts", async () => {
    for (const { page } of [xia, yan]) {
      await predict(page, second, ink);
      later = page.url();
      await predict(page, first, page === xia.page ? wax : ink);
      expect(await page.getByText("Sealed").count()).toBe(0);
    }
    const id = Number(new URL(xia.page.url()).hash.split("/").at(-1));
    await zoe.request("/api/auth/predictions", "POST", { event_id: id, prediction: "draw" });
    // Predictions count if they were made before the start, which has whole seconds.
    await new Promise((done) => setTimeout(done, 1_500));
    live = { status: "live", start_time: time(0), home_score: 0, away_score: 0 };
    await importCup({ first: live });
    for (const { page } of [xia, yan]) {
      await showPrediction(page);
      await shown(own(page).getByText(/^Sealed \d+ \w+, \d\d:\d\d$/), 40_000);
      await shown(verify(page));
      await check(page, "sealed");
    }
    const seal = await latestSeal();
    expect([seal.event_id, seal.count]).toEqual([id, 3]);
  });

  test("prediction is verified in the browser against the public seals", async () => {
    const seal = await latestSeal();
    for (const { page } of [xia, yan]) {
      const requests: { path: string; token: string | undefined }[] = [];
      page.on("request", (request) => {
        const { pathname, search } = new URL(request.url());
        requests.push({ path: pathname + search, token: request.headers().authorization });
      });
      await verify(page).focus();
      await page.keyboard.press("Enter");
      await shown(
        own(page).getByRole("status").filter({ hasText: "Verified Your prediction was saved before kick-off" }),
      );
      const button = own(page).getByRole("button", { name: "Verify again" });
      expect(await button.evaluate((element) => element === document.activeElement)).toBe(true);
      // The verification is loaded when it is needed, and the public seals without a token.
      expect(requests.filter(({ path }) => /^\/assets\/verify-/.test(path))).toHaveLength(1);
      const lists = requests.filter(({ path }) => path.startsWith("/api/seals?"));
      expect(lists).toEqual([
        { path: `/api/seals?after=${Math.max(0, seal.sequence - 2)}&per_page=3`, token: undefined },
      ]);
      page.removeAllListeners("request");
      await check(page, "verified");
      await own(page).getByText("Details").click();
      await shown(own(page).getByText(`${seal.sequence}, with 3 predictions`));
      await shown(own(page).getByText(seal.hash));
      await check(page, "verified-details");
    }
    await xia.page.setViewportSize(small);
    await check(xia.page, "verified-details");
    await xia.page.setViewportSize(phone);
  });

  test("match chat shows the whole hash", async () => {
    const seal = await latestSeal();
    for (const { page } of [xia, yan]) {
      if (page === xia.page) await page.getByRole("radio", { name: "Chat" }).check();
      const announcement = page.getByText(`Predictions sealed: 3. Seal ${seal.sequence}: ${seal.hash}`);
      await shown(announcement);
      expect(await announcement.evaluate((element) => element.scrollWidth - element.clientWidth)).toBeLessThanOrEqual(
        0,
      );
      await check(page, "seal-chat");
      await showPrediction(page);
    }
  });

  test("hash can be copied", async () => {
    const { page } = yan;
    const seal = await latestSeal();
    await own(page).getByRole("button", { name: "Copy hash" }).click();
    await shown(own(page).getByRole("button", { name: "Copied ✓" }));
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(seal.hash);
  });

  test("downloaded proof is a file for matchday-verify", async () => {
    const { page } = yan;
    const seal = await latestSeal();
    const download = page.waitForEvent("download");
    await own(page).getByRole("button", { name: "Download proof" }).click();
    const file = await download;
    expect(file.suggestedFilename()).toBe(`matchday-proof-seal-${seal.sequence}.json`);
    const path = await file.path();
    expect(JSON.parse(await readFile(path, "utf8"))).toMatchObject({
      receipt: { prediction: "away", event_id: seal.event_id },
      seal: { hash: seal.hash },
    });
    // The binary is there after `cargo build -p matchday-verify` and after every run of the Rust tests.
    const verifier = join(dirname(process.env.SERVICE_BIN ?? ""), "matchday-verify");
    if (!existsSync(verifier)) return;
    const { stdout } = await promisify(execFile)(verifier, ["receipt", path]);
    expect(stdout).toContain(`verified: the prediction is one of 3 in seal ${seal.sequence}`);
  });
});

describe("failed verification", () => {
  const failed = (page: Page) =>
    own(page)
      .getByRole("status")
      .filter({ hasText: /^Not verified/ });

  test("changed proof is not verified", async () => {
    for (const { page } of [xia, yan]) {
      await tamper(page, "**/proof", ({ data }: { data: { receipt: { confidence: number } } }) => {
        data.receipt.confidence = 90;
      });
      await verify(page).click();
      await shown(failed(page));
      await shown(failed(page).getByText(/download the proof and contact support/));
      await own(page).getByText("Details").click();
      await shown(own(page).getByText(/the fields of the receipt have the hash [0-9a-f]{64}, not/));
      await check(page, "not-verified");
      await page.unroute("**/proof");
    }
  });

  test("seal that the public list does not have is not verified", async () => {
    const { page } = xia;
    await tamper(page, "**/api/seals?after=*", ({ data }: { data: Seal[] }) => {
      for (const seal of data) seal.hash = seal.hash.replace(/^./, (digit) => (digit === "0" ? "1" : "0"));
    });
    await verify(page).click();
    await shown(failed(page));
    await page.unroute("**/api/seals?after=*");
    await verify(page).click();
    await shown(
      own(page)
        .getByRole("status")
        .filter({ hasText: /^Verified/ }),
    );
  });

  test("proof of a different prediction shows what is sealed", async () => {
    const { page } = yan;
    await page.route("**/proof", async (route) => {
      // Zoe's prediction is in the same seal.
      const { data } = await zoe.request<{ data: { id: number }[] }>("/api/auth/predictions");
      const json = await zoe.request(`/api/auth/predictions/${data[0]?.id}/proof`);
      await route.fulfill({ json: json as object });
    });
    await verify(page).click();
    await shown(
      own(page)
        .getByRole("status")
        .filter({ hasText: /^Different prediction.*contains this prediction: Draw/ }),
    );
    await check(page, "different");
    await page.unroute("**/proof");
  });

  test("missing seal is explained", async () => {
    const { page } = xia;
    await refuse(page, "not_sealed", "The match is not sealed yet.");
    await verify(page).click();
    await shown(
      own(page)
        .getByRole("status")
        .filter({ hasText: /^Not sealed yet This seal is older than your prediction/ }),
    );
    await check(page, "not-sealed");
    await page.unroute("**/proof");
  });

  test("offline fan can try again", async () => {
    const { page, context } = xia;
    await context.setOffline(true);
    await verify(page).click();
    await shown(own(page).getByRole("alert").filter({ hasText: "You're offline." }));
    await check(page, "seal-offline");
    await context.setOffline(false);
    await verify(page).click();
    await shown(
      own(page)
        .getByRole("status")
        .filter({ hasText: /^Verified/ }),
    );
    expect(await own(page).getByRole("alert").count()).toBe(0);
  });
});

describe("late prediction", () => {
  test("is shown as not counted", async () => {
    // The start moves to a time before the predictions.
    await importCup({ first: live, second: { ...live, start_time: time(-3_600_000) } });
    for (const { page } of [xia, yan]) {
      // The list shows the predictions too, so a link cannot be found by the order of the names.
      await page.goto(later);
      await showPrediction(page);
      await shown(verify(page), 40_000);
      await verify(page).click();
      await shown(
        own(page)
          .getByRole("status")
          .filter({ hasText: /^Not counted You predicted after kick-off/ }),
      );
      await own(page).getByText("Details").click();
      expect(await own(page).getByRole("button", { name: "Download proof" }).count()).toBe(0);
      await check(page, "not-counted");
    }
  });
});

test("no page had errors", () => {
  expect([...xia.faults, ...yan.faults]).toEqual([]);
});
