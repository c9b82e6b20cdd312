import { randomInt } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { violationsOf } from "./axe.js";
import { codeOf, type Device, logIn, Stage, service, writeScore } from "./stage.js";

// One match day, in order: each test builds on the state that the previous ones left. Mara is a fan of the demo data, on a
// phone. Nia is a new fan, on a desktop.
let stage: Stage;
let mara: Device;
let nia: Device;
const number = randomInt(100_000, 999_999);
const niasName = `nia.${number}`;
const niasPhone = `+1555${randomInt(1_000_000, 9_999_999)}`;

beforeAll(async () => {
  stage = await Stage.open();
  mara = await stage.device({ reducedMotion: "reduce" });
  nia = await stage.device({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce" });
});
afterAll(() => stage?.close());

const shown = (locator: Locator, timeout = 20_000) => locator.waitFor({ state: "visible", timeout });
const score = (page: Page) => page.getByRole("region", { name: "Score" });
const chat = (page: Page) => page.getByRole("log", { name: "Messages" });
const total = (page: Page) => page.getByTestId("total");
const numberIn = async (locator: Locator) => Number((await locator.textContent())?.replace(/\D/g, ""));
const tokenOf = (page: Page) => page.evaluate(() => localStorage.getItem("matchday.token") ?? "");

async function openMatch(page: Page, name: RegExp) {
  await page.goto("/#/");
  // On a phone, one of the lists is hidden. The previous page may still be visible, so wait for the match in either list.
  await page.getByRole("link", { name, includeHidden: true }).first().waitFor({ state: "attached" });
  const link = page.getByRole("link", { name }).filter({ visible: true }).first();
  if (!(await link.isVisible())) await page.getByRole("radio", { name: "Results" }).check();
  await link.click();
  await shown(page.getByRole("heading", { level: 1, name }));
}

describe("login", () => {
  test("shows an error for an invalid number and a wrong code", async () => {
    const { page } = mara;
    await page.goto("/");
    await page.getByLabel("Phone number").fill("12");
    await page.getByRole("button", { name: "Send code" }).click();
    await shown(page.getByRole("alert"));
    await page.getByLabel("Phone number").fill("+1 555 010 0100");
    await page.getByRole("button", { name: "Send code" }).click();
    const field = page.getByLabel(/Code sent to/);
    await shown(field);
    const code = await codeOf("+15550100100");
    await field.fill(code === "000000" ? "000001" : "000000");
    await page.getByRole("button", { name: "Log in", exact: true }).click();
    await shown(page.getByRole("alert"));
    expect(await field.evaluate((element) => element === document.activeElement)).toBe(true);
  });

  test("right code opens the matches, and a new fan chooses a username", async () => {
    await logIn(mara.page, "+15550100100");
    await logIn(nia.page, niasPhone, niasName);
    await nia.page.goto("/#/me");
    await shown(nia.page.getByRole("heading", { level: 1, name: niasName }));
    expect(await numberIn(nia.page.getByTestId("balance"))).toBe(100);
  });

  test("survives a reload", async () => {
    await mara.page.reload();
    await shown(mara.page.getByRole("heading", { level: 1, name: "Matches" }));
  });
});

test("lists matches by day, with the live one first", async () => {
  const { page } = mara;
  await page.goto("/#/");
  await shown(page.getByRole("link", { name: /Live.*Mill Lane.*1 to 0.*Northgate Rovers/ }));
  await shown(page.getByRole("region", { name: "Upcoming" }).getByRole("heading", { level: 3 }).first());
  await page.getByRole("radio", { name: "Results" }).check();
  const results = page.getByRole("region", { name: "Results" });
  await shown(results.getByRole("heading", { level: 4, name: "Lantern Cup" }).first());
  for (const result of [
    /Harbour United 2.*Mill Lane 1/,
    /Northgate Rovers 0.*Old Quay 0/,
    /Saltmarsh Athletic 1.*Tannery Wanderers 3/,
    /Windmill City 2.*Foundry Town 2/,
  ]) {
    await shown(results.getByRole("listitem").filter({ has: page.getByRole("link", { name: result }) }));
  }
  await page.getByRole("radio", { name: "Upcoming" }).check();
  // The service draws the crests of the demo.
  const crests = page.locator("img.crest");
  await page.waitForFunction(() => [...document.images].every((image) => image.complete && image.naturalWidth > 0));
  expect(await crests.count()).toBeGreaterThan(20);
});

describe("prediction", () => {
  test("slider shows the stake, and other fans see the new count", async () => {
    const match = /Harbour United.*Northgate Rovers/;
    await openMatch(nia.page, match);
    await shown(total(nia.page));
    const before = await numberIn(total(nia.page));

    const { page } = mara;
    await openMatch(page, match);
    await shown(page.getByText("Pick an outcome to see the points at stake."));
    await page.getByRole("radio", { name: "Harbour United" }).check();
    // docs/points.md: home, 2–1 with 75%.
    await page.getByRole("button", { name: "Add a score" }).click();
    await page.getByRole("button", { name: "Add a goal for Harbour United" }).click();
    await page.getByRole("button", { name: "Add a goal for Northgate Rovers" }).click();
    await page.getByLabel("How sure are you?").fill("75");
    const stake = page.locator(".stake");
    await shown(stake.filter({ hasText: /right\s*\+39.*difference\s*\+49.*score\s*\+59.*wrong\s*−11/s }));
    await page.getByRole("button", { name: "Save prediction" }).click();
    await shown(page.getByText("Saved: Harbour United 2–1, 75%."));

    await shown(nia.page.getByTestId("total").filter({ hasText: `${before + 1} predictions` }));
    await shown(page.getByTestId("total").filter({ hasText: `${before + 1} predictions` }));
    await page.reload();
    await shown(page.getByRole("button", { name: "Saved", exact: true }));
    expect(await page.getByLabel("How sure are you?").inputValue()).toBe("75");
  });

  test("works with the keyboard only", async () => {
    const { page } = nia;
    await openMatch(page, /Harbour United.*Northgate Rovers/);
    await page.getByRole("radio", { name: "Harbour United" }).focus();
    await page.keyboard.press("ArrowRight");
    expect(await page.getByRole("radio", { name: "Draw" }).isChecked()).toBe(true);
    await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    await page.keyboard.press("ArrowRight");
    await shown(page.locator(".confidence output").filter({ hasText: "55%" }));
    await page.keyboard.press("Tab"); // past "Undo"
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await shown(page.getByText("Saved: Draw, 55%."));
  });
});

test("two fans chat in the room of a match", async () => {
  await openMatch(mara.page, /Mill Lane.*Northgate Rovers/);
  await shown(chat(mara.page)); // the demo made her a member
  await openMatch(nia.page, /Mill Lane.*Northgate Rovers/);
  await shown(chat(nia.page)); // as a spectator; her first message joins

  const [hello, reply] = [`Hello from ${niasName}`, `Welcome, number ${number}`];
  await nia.page.getByLabel("Message", { exact: true }).fill(hello);
  await nia.page.getByRole("button", { name: "Send" }).click();
  await shown(chat(mara.page).getByText(hello));
  await shown(chat(mara.page).getByText(niasName, { exact: true }));
  await mara.page.getByLabel("Message", { exact: true }).fill(reply);
  await mara.page.keyboard.press("Enter");
  await shown(chat(nia.page).getByText(reply));
  await shown(chat(nia.page).getByText("mara.lind", { exact: true }).last());
});

test("reports a message", async () => {
  const { page } = nia;
  await page.getByRole("button", { name: "Report message from mara.lind" }).last().click();
  await page.getByLabel("What's wrong with this message?").fill("Only trying this out");
  await page.getByRole("button", { name: "Report", exact: true }).click();
  await shown(page.getByText(/^Reported\./));
});

describe("live match", () => {
  test("goal appears on open pages and in the chat", async () => {
    const match = Number(new URL(mara.page.url()).hash.split("/").at(-1));
    await nia.page.goto("/#/");
    await shown(nia.page.getByRole("link", { name: /Mill Lane.*1 to 0/ }));
    await writeScore(await tokenOf(mara.page), match, "live", 2, 0);
    await shown(score(mara.page).filter({ hasText: /2\s*–\s*to\s*0/ }));
    await shown(
      mara.page.getByRole("status", { name: "Goals" }).filter({ hasText: /Goal.*Mill Lane 2–0 Northgate Rovers/ }),
    );
    await shown(nia.page.getByRole("link", { name: /Mill Lane.*2 to 0/ }));
    await shown(chat(mara.page).locator(".announcement").filter({ hasText: /2.*0/ }));
  });

  test("result gives points with an explanation", async () => {
    const match = Number(new URL(mara.page.url()).hash.split("/").at(-1));
    await writeScore(await tokenOf(mara.page), match, "finished", 2, 0);
    await mara.page.getByRole("radio", { name: "Prediction" }).check();
    const own = mara.page.getByRole("region", { name: "Your prediction" });
    await shown(own.getByText(/[+−]?\d+ points/));
    await shown(own.getByRole("listitem").first());
  });

  test("leaderboard shows ranks, overall and by tournament and room", async () => {
    const { page } = mara;
    await page.getByRole("radio", { name: "Chat" }).check();
    await page.getByRole("region", { name: "Match chat" }).getByRole("link", { name: "Leaderboard" }).click();
    await shown(page.getByRole("table").getByRole("row", { name: /Mara Lind/ }));
    const boards = page.getByRole("combobox", { name: "Leaderboard" });
    expect(await boards.inputValue()).toMatch(/^\/table\/room\//);
    await boards.selectOption({ label: "Lantern Cup" });
    await shown(page.getByText(/You're \d+(st|nd|rd|th) of \d+/));
    await boards.selectOption({ label: "All tournaments" });
    await shown(page.getByText(/You're \d+(st|nd|rd|th) of \d+/));
    await page.getByRole("radio", { name: "This week" }).check();
    // On a Monday, all results of the demo may belong to the previous week.
    await shown(page.getByRole("table").or(page.getByText("No points yet.")));
  });
});

describe("own page", () => {
  test("daily coins are claimed once", async () => {
    const { page } = mara;
    await page.goto("/#/me");
    const claim = page.getByRole("button", { name: /Claim \d+ coins/ });
    await shown(claim);
    const [before, coins] = [await numberIn(page.getByTestId("balance")), await numberIn(claim)];
    await claim.click();
    await shown(page.getByText(`You got ${coins} coins.`));
    await shown(page.getByTestId("balance").filter({ hasText: String(before + coins) }));
    await shown(page.getByRole("link", { name: `${before + coins} coins` }));
    expect(await page.getByRole("button", { name: /^Next: \d+ coins, tomorrow/ }).isDisabled()).toBe(true);
  });

  test("chart compares confidence with results", async () => {
    const { page } = mara;
    await shown(page.getByRole("img", { name: /at \d+%, \d+ of \d+ correct/ }));
    await page.getByText("Show as a table").click();
    await shown(page.getByRole("columnheader", { name: "Matches" }));
  });

  test("switched-off reminders stay off", async () => {
    const { page } = mara;
    await page.getByRole("link", { name: "Notifications" }).click();
    const reminders = page.getByRole("switch", { name: /Reminders/ });
    await reminders.click();
    await shown(page.getByText("Saved", { exact: true }));
    await page.reload();
    await shown(page.getByRole("switch", { name: /Reminders/, checked: false }));
  });
});

test("accessibility check finds violations", async () => {
  const { page, context } = await stage.device();
  await page.setContent('<html lang="en"><main><h1 style="color:#aaa;background:#fff">Faint</h1><input></main></html>');
  const found = (await violationsOf(page)).map((fault) => fault.split(":")[0]);
  expect(found).toEqual(expect.arrayContaining(["color-contrast", "label"]));
  await context.close();
});

for (const colorScheme of ["light", "dark"] as const) {
  test(`every page is accessible (${colorScheme})`, async () => {
    const { page, faults } = await stage.device({ colorScheme, reducedMotion: "reduce" });
    const check = async (where: string) => expect(await violationsOf(page), where).toEqual([]);
    await page.goto("/");
    await shown(page.getByLabel("Phone number"));
    await check("login: phone");
    await page.getByLabel("Phone number").fill("+15550100101");
    await page.getByRole("button", { name: "Send code" }).click();
    await shown(page.getByLabel(/Code sent to/));
    await page.getByText("Choose a username").click();
    await shown(page.getByRole("list", { name: "Available usernames" }));
    await check("login: code");
    await page.getByLabel(/Code sent to/).fill(await codeOf("+15550100101"));
    await page.getByRole("button", { name: "Log in", exact: true }).click();
    await shown(page.getByText(/You: /).first());
    await check("matches");
    for (const viewport of [
      { width: 1280, height: 800 },
      { width: 390, height: 844 },
    ]) {
      await page.setViewportSize(viewport);
      const isPhone = viewport.width < 860;
      await openMatch(page, /Old Quay.*Harbour United/);
      await shown(page.locator(".stake"));
      if (isPhone) {
        await check("upcoming match: prediction");
        await page.getByRole("radio", { name: "Chat" }).check();
      }
      await shown(chat(page));
      await check("upcoming match");
      if (isPhone) await page.getByRole("radio", { name: "Prediction" }).check();
      await openMatch(page, /Mill Lane.*Northgate Rovers/);
      if (isPhone) await page.getByRole("radio", { name: "Prediction" }).check();
      await shown(page.getByRole("region", { name: "Your prediction" }));
      if (isPhone) {
        await check("finished match: prediction");
        await page.getByRole("radio", { name: "Chat" }).check();
      }
      await shown(chat(page).locator(".announcement").first());
      await check("finished match");
      if (isPhone) await page.getByRole("radio", { name: "Prediction" }).check();
      await page.goto("/#/table");
      await shown(page.getByRole("table"));
      await check("table");
      await page.goto("/#/me");
      await shown(page.getByRole("img", { name: /Your confidence/ }));
      await shown(page.getByText("This device"));
      await check("you");
      await page.getByRole("button", { name: "Delete my account" }).click();
      await shown(page.getByRole("button", { name: "Send code" }));
      await check("deleting the account");
    }
    expect(faults).toEqual([]);
    await page.context().close();
  });
}

describe("end of a session", () => {
  test("session ended on another device leads to the login", async () => {
    const other = await stage.device();
    await logIn(other.page, "+15550100100");
    await mara.page.goto("/#/me");
    const endings = mara.page.getByRole("button", { name: /End session:/ });
    await mara.page.reload();
    await shown(endings.first());
    await endings.first().click();
    // The stream of the other device ends with its next heartbeat, after at most 15 seconds.
    await shown(other.page.getByRole("heading", { name: "You've been logged out" }), 40_000);
    await other.page.getByRole("button", { name: "Log in again" }).click();
    await shown(other.page.getByLabel("Phone number"));
    await other.context.close();
  });

  test("data export is downloaded as a file", async () => {
    const { page } = nia;
    await page.goto("/#/me");
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Download my data" }).click(),
    ]);
    expect(download.suggestedFilename()).toBe(`matchday-${niasName}.json`);
    const { data } = JSON.parse(await readFile(await download.path(), "utf8"));
    expect(data.users).toEqual([expect.objectContaining({ username: niasName, phone: niasPhone })]);
    expect(data.predictions).toHaveLength(1);
  });

  test("deletes the account with a code and ends the session", async () => {
    const { page } = nia;
    await page.getByRole("button", { name: "Delete my account" }).click();
    expect(await violationsOf(page)).toEqual([]);
    await page.getByRole("button", { name: "Keep my account" }).click();
    const opener = page.getByRole("button", { name: "Delete my account" });
    expect(await opener.evaluate((element) => element === document.activeElement)).toBe(true);
    await opener.click();
    await page.getByRole("button", { name: "Send code" }).click();
    const field = page.getByLabel("Code sent to your phone");
    await shown(field);
    const code = await codeOf(niasPhone);
    await field.fill(code === "000000" ? "000001" : "000000");
    await page.getByRole("button", { name: "Delete permanently" }).click();
    await shown(page.getByRole("alert"));
    expect(await violationsOf(page)).toEqual([]);
    const token = await tokenOf(page);
    await field.fill(code);
    await page.getByRole("button", { name: "Delete permanently" }).click();
    await shown(page.getByRole("heading", { name: "Your account has been deleted" }));
    expect(await violationsOf(page)).toEqual([]);
    expect(await page.evaluate(() => localStorage.length)).toBe(0);
    const late = await fetch(`${service}/api/auth/me`, { headers: { Authorization: `Bearer ${token}` } });
    expect(late.status).toBe(401);
    await page.getByRole("button", { name: "Back to login" }).click();
    await shown(page.getByLabel("Phone number"));
  });

  test("logout ends the session in the browser and at the service", async () => {
    const { page, faults } = mara;
    const token = await tokenOf(page);
    await page.getByRole("button", { name: "Log out" }).click();
    await shown(page.getByLabel("Phone number"));
    expect(await page.evaluate(() => localStorage.length)).toBe(0);
    const late = await fetch(`${service}/api/auth/me`, { headers: { Authorization: `Bearer ${token}` } });
    expect(late.status).toBe(401);
    expect([faults, nia.faults]).toEqual([[], []]);
  });
});
