import { randomInt } from "node:crypto";
import { crc32, deflateSync } from "node:zlib";
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { check } from "./look.js";
import { type Device, logIn, Stage } from "./stage.js";

// Picture of a fan, in order: each test builds on the state that the previous ones left. Amy uses a phone, and Bea a desktop.
// SHOTS_TO=FOLDER saves screenshots.
const run = randomInt(100_000, 999_999);
const phone = { width: 390, height: 844 };
const desktop = { width: 1280, height: 900 };
const newPhone = () => `+1555${randomInt(1_000_000, 9_999_999)}`;
const [amyName, beaName] = [`amy.${run}`, `bea.${run}`];

let stage: Stage;
let amy: Device;
let bea: Device;

const shown = (locator: Locator, timeout = 20_000) => locator.waitFor({ state: "visible", timeout });
const section = (page: Page) => page.getByRole("region", { name: "Picture", exact: true });
const field = (page: Page) => section(page).getByLabel(/(Choose a|Change) picture/);
const uploading = "**/api/auth/me/avatar";

/** Checks the page at both sizes, in light and dark. */
async function checkBoth(page: Page, where: string): Promise<void> {
  const before = page.viewportSize() ?? phone;
  for (const size of [phone, desktop]) {
    await page.setViewportSize(size);
    await check(page, where);
  }
  await page.setViewportSize(before);
}

/** A picture with a red and a blue half. */
function png(width: number, height: number): Buffer {
  const chunk = (kind: string, content: Buffer) => {
    const body = Buffer.concat([Buffer.from(kind), content]);
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(content.length);
    sum.writeUInt32BE(crc32(body));
    return Buffer.concat([length, body, sum]);
  };
  const row = Buffer.alloc(1 + width * 3);
  for (let x = 0; x < width; x += 1) row.set(x < width / 2 ? [200, 40, 40] : [40, 60, 200], 1 + x * 3);
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2, 0, 0, 0], 8);
  const data = deflateSync(Buffer.concat(Array.from({ length: height }, () => row)), { level: 1 });
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  return Buffer.concat([signature, chunk("IHDR", header), chunk("IDAT", data), chunk("IEND", Buffer.alloc(0))]);
}

const choose = (page: Page, buffer: Buffer, name = "me.png", mimeType = "image/png") =>
  field(page).setInputFiles({ name, mimeType, buffer });

/** Colour of the middle of a picture on the page. */
const colourOf = (image: Locator) =>
  image.evaluate(async (element) => {
    const image = element as HTMLImageElement;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = 9;
    canvas.height = 9;
    const context = canvas.getContext("2d");
    context?.drawImage(image, 0, 0, 9, 9);
    const [red = 0, , blue = 0] = context?.getImageData(4, 4, 1, 1).data ?? [];
    return red > blue ? "red" : "blue";
  });

beforeAll(async () => {
  stage = await Stage.open();
  amy = await stage.device({ viewport: phone, reducedMotion: "reduce" });
  bea = await stage.device({ viewport: desktop, reducedMotion: "reduce" });
  await logIn(amy.page, newPhone(), amyName);
  await logIn(bea.page, newPhone(), beaName);
}, 180_000);
afterAll(() => stage?.close());

test("file that is not a picture is refused in words", async () => {
  const { page } = amy;
  await page.goto("/#/me/profile");
  await shown(section(page));
  expect(await section(page).locator("[data-initials]").getAttribute("data-initials")).toBe("A");
  await choose(page, Buffer.from("Dear diary"), "diary.txt", "text/plain");
  await shown(section(page).getByText("This file can't be opened as a picture."));
  await checkBoth(page, "picture-unreadable");
});

test("large picture is cropped with the keyboard and uploaded as a small one", async () => {
  const { page } = amy;
  // Larger than the service accepts.
  await choose(page, png(5000, 3000));
  const frame = section(page).getByRole("group", { name: /Visible part/ });
  await shown(frame);
  expect(await frame.evaluate((element) => element === document.activeElement)).toBe(true);
  await checkBoth(page, "picture-editor");
  for (let pressed = 0; pressed < 12; pressed += 1) await page.keyboard.press("ArrowRight");
  await section(page).getByLabel("Zoom").fill("2");
  let size = 0;
  let type: string | undefined;
  let release = () => {};
  const held = new Promise<void>((done) => {
    release = done;
  });
  await page.route(uploading, async (route) => {
    size = route.request().postDataBuffer()?.length ?? 0;
    type = route.request().headers()["content-type"];
    await held;
    await route.continue();
  });
  await section(page).getByRole("button", { name: "Use this picture" }).click();
  await shown(section(page).getByRole("progressbar", { name: "Upload" }));
  await checkBoth(page, "picture-uploading");
  release();
  await shown(section(page).getByText("Your new picture is saved."));
  await page.unroute(uploading);
  expect(type).toBe("image/jpeg");
  expect(size).toBeLessThan(1_000_000);
  const image = section(page).locator("img.avatar");
  await shown(image);
  expect(await image.getAttribute("src")).toMatch(/\/api\/avatars\/[a-z0-9]{32}\.jpg$/);
  expect(await colourOf(image)).toBe("blue");
  expect(await field(page).evaluate((element) => element === document.activeElement)).toBe(true);
  await checkBoth(page, "picture-saved");
});

test("other fans see the picture", async () => {
  const { page } = bea;
  await page.goto(`/#/users/${amyName}`);
  await shown(page.getByRole("heading", { level: 1, name: amyName }));
  expect(await colourOf(page.locator(".profile-top img.avatar"))).toBe("blue");
  await page.getByRole("button", { name: `Follow: ${amyName}` }).click();
  await shown(page.getByRole("button", { name: `Unfollow: ${amyName}` }));
  await checkBoth(page, "profile-picture");
  await page.goto("/#/me/following");
  const image = page.getByRole("listitem").filter({ hasText: amyName }).locator("img.avatar");
  await shown(image);
  expect(await image.getAttribute("src")).toMatch(/\?size=128$/);
});

test("failed upload keeps the selection and can be repeated or cancelled", async () => {
  const { page } = amy;
  await page.goto("/#/me/profile");
  await choose(page, png(300, 300));
  const use = section(page).getByRole("button", { name: "Use this picture" });
  const again = section(page).getByRole("button", { name: "Try again" });
  await page.route(uploading, (route) => route.abort());
  await use.click();
  await shown(section(page).getByText("We can't reach the server."));
  await checkBoth(page, "picture-failed");
  await page.unroute(uploading);
  const refuse = async (status: number, code: string, text: string, headers: Record<string, string> = {}) => {
    await page.route(uploading, (route) => route.fulfill({ status, headers, json: { code, message: "Refused." } }));
    await again.click();
    await shown(section(page).getByText(text));
    await page.unroute(uploading);
  };
  await refuse(409, "avatars_unavailable", "Pictures can't be changed at the moment.");
  await refuse(422, "validation_failed", "This picture can't be used. Choose another one.");
  await refuse(429, "rate_limited", "Try again in 40 seconds.", { "Retry-After": "40" });
  await section(page).getByRole("button", { name: "Cancel" }).click();
  await shown(section(page).locator("img.avatar"));
  await choose(page, png(300, 300));
  await use.click();
  await shown(section(page).getByText("Your new picture is saved."));
});

test("upload that is cancelled too late shows the new picture", async () => {
  const { page } = amy;
  const image = section(page).locator("img.avatar");
  const before = await image.getAttribute("src");
  let stored = () => {};
  const isStored = new Promise<void>((done) => {
    stored = done;
  });
  // The response never arrives.
  await page.route(uploading, async (route) => {
    const response = await route.fetch();
    expect(response.ok()).toBe(true);
    stored();
  });
  await choose(page, png(200, 200));
  await section(page).getByRole("button", { name: "Use this picture" }).click();
  await isStored;
  await section(page).getByRole("button", { name: "Cancel" }).click();
  await page.unroute(uploading);
  await expect.poll(() => image.getAttribute("src")).not.toBe(before);
});

test("removed picture is replaced by the initials", async () => {
  const { page } = amy;
  await page.getByRole("button", { name: "Remove picture" }).click();
  await shown(page.getByText("Others then see your initials."));
  await checkBoth(page, "picture-remove");
  await page.getByRole("button", { name: "Remove", exact: true }).click();
  await shown(section(page).getByText("Your picture is removed."));
  await shown(section(page).locator("[data-initials]"));
  await shown(section(page).getByLabel("Choose a picture"));
  await bea.page.goto(`/#/users/${amyName}`);
  await bea.page.reload();
  await shown(bea.page.locator(".profile-top [data-initials]"));
  expect([...amy.faults, ...bea.faults]).toEqual([]);
});
