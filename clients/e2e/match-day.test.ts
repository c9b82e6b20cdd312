import { randomInt } from "node:crypto";
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { violationsOf } from "./axe.js";
import { check } from "./look.js";
import { type ApiFan, type Device, logIn, logInByApi, runCommand, Stage } from "./stage.js";

// Pages that are open while their match starts, goes on and ends, in order: each test builds on the state that the previous
// ones left. Una uses a phone and Vic the API. SHOTS_TO=FOLDER saves screenshots.
const run = randomInt(100_000, 999_999);
const cup = `Evening Cup ${run}`;
const [larks, wrens] = ["Larkfield Town", "Wrenbury Rovers"];
const [first, second] = [/Larkfield Town.*Wrenbury Rovers/, /Wrenbury Rovers.*Larkfield Town/];
const newPhone = () => `+1555${randomInt(1_000_000, 9_999_999)}`;
const patience = { timeout: 20_000 };

let stage: Stage;
let una: Device;
let page: Page;
let vic: ApiFan;

const shown = (locator: Locator) => locator.waitFor({ state: "visible", ...patience });
const gone = (locator: Locator) => locator.waitFor({ state: "hidden", ...patience });
const form = () => page.getByRole("form", { name: "Your prediction" });
const own = () => page.getByRole("region", { name: "Your prediction" });
const score = () => page.getByRole("region", { name: "Score" });
const goals = () => page.getByRole("status", { name: "Goals" });
const tab = (name: string) => page.getByRole("radio", { name, exact: true });
const message = () => page.getByLabel("Message", { exact: true });
const isFocused = (locator: Locator) => locator.evaluate((element) => element === document.activeElement);
/** Times of imported matches, in whole seconds. */
const time = (offset: number) => new Date(Date.now() + offset).toISOString().replace(/\.\d+Z$/, "Z");
const slugOf = (name: string) => `${name.toLowerCase().replaceAll(" ", "_")}_${run}`;

const matches = ["first", "second"].map((key, number) => ({
  key,
  home: slugOf(number === 0 ? larks : wrens),
  away: slugOf(number === 0 ? wrens : larks),
  venue: "Evening Park",
  start_time: time(86_400_000),
  status: "scheduled",
  home_score: null as number | null,
  away_score: null as number | null,
}));

/** Imports the matches of the cup, with changes to one of them. */
async function change(key?: "first" | "second", changes: Partial<(typeof matches)[number]> = {}): Promise<void> {
  for (const match of matches) if (match.key === key) Object.assign(match, changes);
  await runCommand(
    ["fixtures", "import", "-"],
    JSON.stringify({
      sport: { slug: "football", name: "Football" },
      tournament: { slug: `evening_${run}`, name: cup },
      teams: [larks, wrens].map((name) => ({ slug: slugOf(name), name, country: "Anywhere", founded: 1900 })),
      matches,
    }),
  );
}
const kickOff = () => ({ status: "live", start_time: time(0), home_score: 0, away_score: 0 });

async function open(match: RegExp): Promise<void> {
  await page.goto("/#/");
  await page.getByRole("combobox", { name: "Tournament" }).selectOption({ label: cup });
  await page.getByRole("link", { name: match }).filter({ visible: true }).first().click();
  await shown(page.getByRole("heading", { level: 1, name: match }));
}

beforeAll(async () => {
  stage = await Stage.open();
  await change();
  una = await stage.device({ reducedMotion: "reduce" });
  page = una.page;
  await logIn(page, newPhone(), `una.${run}`);
  vic = await logInByApi(newPhone(), `vic.${run}`);
}, 180_000);
afterAll(() => stage?.close());

describe("unsaved prediction at kick-off", () => {
  test("change is not saved, and the earlier prediction counts", async () => {
    await open(first);
    await form().getByRole("radio", { name: larks }).check();
    await form().getByRole("button", { name: "Save prediction" }).click();
    await shown(form().getByText(`Saved: ${larks}, 50%.`));
    // Predictions count if they were made before the start, which has whole seconds.
    await new Promise((done) => setTimeout(done, 1_500));
    await form().getByRole("radio", { name: "Draw" }).check();
    await shown(form().getByText("Not saved", { exact: true }));
    await change("first", kickOff());
    const alert = own().getByRole("alert");
    await shown(alert.filter({ hasText: `Kick-off. Your change wasn't saved; ${larks}, 50% counts.` }));
    expect(await tab("Prediction").isChecked()).toBe(true);
    await expect
      .poll(() => alert.evaluate((element) => element.getBoundingClientRect().top), patience)
      .toBeGreaterThan(50);
    await check(page, "lost-change");
    await alert.getByRole("button", { name: "OK" }).click();
    await gone(alert);
    await shown(own().getByText(`${larks}, 50%`));
  });

  test("first prediction is not saved", async () => {
    await open(second);
    await form().getByRole("radio", { name: "Draw" }).check();
    await change("second", kickOff());
    await shown(own().getByRole("alert").filter({ hasText: "Kick-off. Your prediction Draw, 50% wasn't saved." }));
    await shown(own().getByText("You didn't predict this match."));
    expect(await tab("Prediction").isChecked()).toBe(true);
    await check(page, "lost-prediction");
    // The message stays until the fan has read it.
    await page.goto("/#/me");
    await page.goBack();
    await shown(own().getByRole("alert"));
    await own().getByRole("button", { name: "OK" }).click();
    await gone(own().getByRole("alert"));
  });
});

describe("live match", () => {
  test("half-written message and the view survive goals and full time", async () => {
    await page.evaluate(() => sessionStorage.clear());
    await open(first);
    await shown(message());
    expect(await tab("Chat").isChecked(), "a live match opens with its chat").toBe(true);
    await message().fill("What a ");
    await message().press("End");
    await change("first", { home_score: 1 });
    await shown(score().filter({ hasText: /1\s*–\s*to\s*0/ }));
    await change("first", { status: "finished" });
    await shown(score().getByText("Full time"));
    expect(await tab("Chat").isChecked()).toBe(true);
    expect(await isFocused(message())).toBe(true);
    await page.keyboard.type("goal!");
    expect(await message().inputValue()).toBe("What a goal!");
    await check(page, "full-time-in-chat");
    // The text stays while the fan visits another tab or page.
    await tab("Prediction").check();
    await shown(own());
    await tab("Chat").check();
    expect(await message().inputValue()).toBe("What a goal!");
    await page.goto("/#/me");
    await gone(message());
    await page.goBack();
    await shown(message());
    expect(await message().inputValue()).toBe("What a goal!");
    await page.getByRole("button", { name: "Send" }).click();
    await shown(page.getByRole("log", { name: "Messages" }).getByText("What a goal!"));
    expect(await message().inputValue()).toBe("");
  });

  test("disallowed goal and corrected score are announced as such", async () => {
    await page.goto("/#/table");
    await change("second", { home_score: 1 });
    await shown(goals().filter({ hasText: `Goal${wrens} 1–0` }));
    await change("second", { home_score: 0 });
    await shown(goals().filter({ hasText: `Goal disallowed${wrens} 0–0` }));
    await change("first", { home_score: 2 });
    await shown(goals().filter({ hasText: `Score corrected${larks} 2–0` }));
  });
});

describe("wrong link", () => {
  test("unknown page leads to the matches", async () => {
    await page.goto("/#/nonsense");
    await shown(page.getByRole("heading", { level: 1, name: "Page not found" }));
    await check(page, "not-found");
    await page.getByRole("link", { name: "Go to matches" }).click();
    await shown(page.getByRole("heading", { level: 1, name: "Matches" }));
  });

  test("missing match cannot be tried again", async () => {
    for (const id of ["99999999", "nonsense"]) {
      await page.goto(`/#/match/${id}`);
      await shown(page.getByRole("alert").filter({ hasText: "This doesn't exist or is no longer available." }));
      expect(await page.getByRole("button", { name: "Try again" }).count()).toBe(0);
      await shown(page.getByRole("link", { name: "All matches" }));
    }
  });
});

test("row that just changed is readable in dark mode", async () => {
  const [tournament] = (await vic.request<{ data: { id: number; name: string }[] }>("/api/auth/tournaments")).data;
  const body = { name: `Evening league ${run}`, visibility: "public", tournament_ids: [tournament?.id] };
  const { data: league } = await vic.request<{ data: { id: number } }>("/api/auth/leagues", "POST", body);
  await page.emulateMedia({ colorScheme: "dark", reducedMotion: "no-preference" });
  await page.goto(`/#/leagues/${league.id}`);
  await shown(page.getByRole("table").getByText(/exact · /));
  // Stops the animation at its first frame, which has the strongest colour.
  const count = await page.evaluate(() => {
    for (const row of document.querySelectorAll(".league-table tbody tr")) row.classList.add("changed");
    const animations = document.getAnimations().filter((one) => (one as CSSAnimation).animationName === "changed");
    for (const animation of animations) {
      animation.pause();
      animation.currentTime = 0;
    }
    return animations.length;
  });
  expect(count).toBeGreaterThan(0);
  expect(await violationsOf(page)).toEqual([]);
  expect(una.faults).toEqual([]);
});
