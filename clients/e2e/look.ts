import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { expect } from "vitest";
import { violationsOf } from "./axe.js";

/** Emulates the colours of the device and waits until the page has them. */
async function setColours(page: Page, colorScheme: "light" | "dark"): Promise<void> {
  await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
  // The browser applies the colours later. Axe would see those of both schemes.
  await page.waitForFunction((isDark) => {
    const ground = getComputedStyle(document.documentElement).backgroundColor.match(/\d+/g) ?? [];
    return ground.reduce((sum, part) => sum + Number(part), 0) < 384 === isDark;
  }, colorScheme === "dark");
  // Links may get their colours a frame later.
  await page.evaluate(
    () => new Promise<void>((done) => requestAnimationFrame(() => requestAnimationFrame(() => done()))),
  );
}

/** Saves screenshots of the whole page in light and dark in the folder SHOTS_TO, if it is set. */
async function shot(page: Page, name: string): Promise<void> {
  const folder = process.env.SHOTS_TO;
  if (!folder) return;
  await mkdir(folder, { recursive: true });
  for (const colorScheme of ["light", "dark"] as const) {
    await setColours(page, colorScheme);
    await page.evaluate(() => document.fonts.ready.then(() => undefined));
    const path = join(folder, `${name}-${page.viewportSize()?.width}-${colorScheme}.png`);
    await page.screenshot({ path, fullPage: true });
  }
}

/** Checks the page with axe, in light and dark, and that nothing is wider than the window. */
export async function check(page: Page, where: string): Promise<void> {
  await shot(page, where);
  for (const colorScheme of ["light", "dark"] as const) {
    await setColours(page, colorScheme);
    expect(await violationsOf(page), `${where}, ${colorScheme}`).toEqual([]);
  }
  await setColours(page, "light");
  const width = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  expect(width, where).toBeLessThanOrEqual(0);
}
