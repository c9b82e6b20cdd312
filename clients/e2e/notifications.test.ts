import { randomInt } from "node:crypto";
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { check } from "./look.js";
import { type Device, logIn, Stage } from "./stage.js";

// Notification settings and devices of Cem, who uses a phone. SHOTS_TO=FOLDER saves screenshots.
const run = randomInt(100_000, 999_999);
const phone = { width: 390, height: 844 };
const desktop = { width: 1280, height: 900 };

let stage: Stage;
let cem: Device;
let page: Page;

const shown = (locator: Locator, timeout = 20_000) => locator.waitFor({ state: "visible", timeout });
const kinds = () => page.getByRole("region", { name: "Notify me about" });
const quiet = () => page.getByRole("region", { name: "Quiet hours" });
const devices = () => page.getByRole("region", { name: "Devices" });
const kind = (name: string, checked?: boolean) =>
  kinds().getByRole("switch", { name: new RegExp(`^${name}`), ...(checked !== undefined && { checked }) });

/** Checks the page at both sizes, in light and dark. */
async function checkBoth(where: string): Promise<void> {
  for (const size of [desktop, phone]) {
    await page.setViewportSize(size);
    await check(page, where);
  }
}

/** Registers a device, as an app of the fan does. */
function register(device: string, platform: "fcm" | "apns", token: string): Promise<void> {
  return page.evaluate(
    async ({ device, body }) => {
      const headers = {
        Authorization: `Bearer ${localStorage.getItem("matchday.token")}`,
        "Content-Type": "application/json",
      };
      const path = `/api/auth/devices/${device}`;
      const response = await fetch(path, { method: "PUT", headers, body: JSON.stringify(body) });
      if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    },
    { device, body: { platform, token } },
  );
}

beforeAll(async () => {
  stage = await Stage.open();
  cem = await stage.device({ viewport: phone, reducedMotion: "reduce", timezoneId: "America/New_York" });
  page = cem.page;
  await logIn(page, `+1555${randomInt(1_000_000, 9_999_999)}`, `cem.${run}`);
}, 180_000);
afterAll(() => stage?.close());

test("kinds are switched one by one, with the keyboard too", async () => {
  await page.goto("/#/me");
  await page.getByRole("link", { name: "Notifications" }).click();
  await shown(kind("Reminders", true));
  await shown(kind("Places lost", false));
  await shown(kind("Streak", false));
  await shown(devices().getByText("No devices yet."));
  await checkBoth("notifications");
  await kind("Reminders").click();
  await shown(kinds().getByText("Saved", { exact: true }));
  await kind("Streak").focus();
  await page.keyboard.press("Space");
  await shown(kind("Streak", true));
  expect(await kind("Streak").evaluate((element) => element === document.activeElement)).toBe(true);
  await shown(kinds().getByText("Saved", { exact: true }));
  await page.reload();
  await shown(kind("Reminders", false));
  await shown(kind("Streak", true));
  await shown(kind("Points", true));
});

test("failed change is undone and explained", async () => {
  const path = "**/api/auth/me/notifications";
  await page.route(path, (route) =>
    route.request().method() === "PUT"
      ? route.fulfill({ status: 500, json: { code: "internal_error", message: "Something broke." } })
      : route.continue(),
  );
  await kind("Mentions").click();
  await shown(kinds().getByText("The setting hasn't changed."));
  await shown(kind("Mentions", true));
  await checkBoth("notifications-failed");
  await page.unroute(path);
});

test("quiet hours wait for an earlier change, and remain when it fails", async () => {
  const path = "**/api/auth/me/notifications";
  const sent: string[] = [];
  let release = () => {};
  const held = new Promise<void>((done) => {
    release = done;
  });
  await page.route(path, async (route) => {
    if (route.request().method() !== "PUT") return route.continue();
    const [setting = ""] = Object.keys(route.request().postDataJSON());
    sent.push(setting);
    if (setting !== "kinds") return route.continue();
    await held;
    return route.fulfill({ status: 500, json: { code: "internal_error", message: "Something broke." } });
  });
  await kind("Mentions").click();
  await shown(kind("Mentions", false));
  await quiet().getByRole("switch").click();
  release();
  await shown(kinds().getByText("The setting hasn't changed."));
  await shown(quiet().getByText("Saved", { exact: true }));
  await shown(quiet().getByLabel("From"));
  await shown(kind("Mentions", true));
  expect(sent).toEqual(["kinds", "quiet_hours"]);
  await page.unroute(path);
  await quiet().getByRole("switch").click();
  await quiet().getByLabel("From").waitFor({ state: "detached" });
});

test("quiet hours use the time of the device", async () => {
  await quiet().getByRole("switch").click();
  await shown(quiet().getByText("Times in New York."));
  expect(await quiet().getByLabel("From").inputValue()).toBe("22:00");
  await quiet().getByLabel("Until").fill("22:00");
  await shown(quiet().getByText("Choose two different times."));
  await checkBoth("quiet-hours-fault");
  await quiet().getByLabel("Until").fill("06:30");
  await quiet().getByRole("button", { name: "Save times" }).click();
  await shown(quiet().getByText("Saved", { exact: true }));
  await page.reload();
  await shown(quiet().getByLabel("Until"));
  expect(await quiet().getByLabel("Until").inputValue()).toBe("06:30");
  await checkBoth("quiet-hours");
  await quiet().getByRole("switch").click();
  await quiet().getByLabel("From").waitFor({ state: "detached" });
});

test("devices are listed and removed", async () => {
  await register(`android-${run}`, "fcm", `token-${run}`);
  await register(`ios-${run}`, "apns", "ab".repeat(32));
  await page.reload();
  await shown(devices().getByText("Android app"));
  await shown(devices().getByText("iPhone or iPad app"));
  await checkBoth("devices");
  await devices()
    .getByRole("button", { name: /^Remove: Android app/ })
    .click();
  await devices().getByText("Android app").waitFor({ state: "detached" });
  await shown(devices().getByText("iPhone or iPad app"));
  await page.reload();
  await shown(devices().getByText("iPhone or iPad app"));
  expect(await devices().getByText("Android app").count()).toBe(0);
  expect(cem.faults).toEqual([]);
});
