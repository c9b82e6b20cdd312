import { randomInt } from "node:crypto";
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { check } from "./look.js";
import { type Device, logIn, runCommand, Stage } from "./stage.js";

// A cup with a final, a joker and multipliers, and a basketball cup without draws. In order: each test builds on the state
// that the previous ones left. Ida uses a phone and Jon a desktop. SHOTS_TO=FOLDER saves screenshots.
const run = randomInt(100_000, 999_999);
const phone = { width: 390, height: 844 };
const desktop = { width: 1280, height: 900 };
const [cup, hoops] = [`Lakeside Cup ${run}`, `Hoops Trophy ${run}`];
const [otters, herons, falcons, giants] = ["Lakeside Otters", "Reedbank Herons", "Fairview Falcons", "Granite Giants"];

let stage: Stage;
let ida: Device;
let jon: Device;

const shown = (locator: Locator, timeout = 20_000) => locator.waitFor({ state: "visible", timeout });
const form = (page: Page) => page.getByRole("form", { name: "Your prediction" });
const score = (page: Page) => page.getByRole("region", { name: "Score" });
const soon = () => new Date(Date.now() + 86_400_000).toISOString().replace(/\.\d+Z$/, "Z");
/** Kick-off of a match that ends now. Predictions that were made before this moment count. */
const justNow = () => new Date().toISOString().replace(/\.\d+Z$/, "Z");

/** Whether nothing covers the centre of an element. */
const isOnTop = (locator: Locator) =>
  locator.evaluate((element) => {
    const { left, right, top, bottom } = element.getBoundingClientRect();
    return document.elementFromPoint((left + right) / 2, (top + bottom) / 2) === element;
  });

const slugOf = (name: string) => `${name.toLowerCase().replaceAll(" ", "_")}_${run}`;
const teams = (...names: string[]) =>
  names.map((name) => ({ slug: slugOf(name), name, country: "Anywhere", founded: 1900 }));

const importDocument = (document: object) => runCommand(["fixtures", "import", "-"], JSON.stringify(document));

/** Imports the matches of the cup, with changes to the final. */
function importCup(final: object = {}): Promise<string> {
  const match = { venue: "Lakeside Ground", start_time: soon(), status: "scheduled", knockout: true };
  const [home, away] = [slugOf(otters), slugOf(herons)];
  return importDocument({
    sport: { slug: "football", name: "Football" },
    tournament: { slug: `lakeside_${run}`, name: cup, rule_set: `lakeside_${run}` },
    rule_sets: [
      { slug: `lakeside_${run}`, name: "Lakeside", multiplier: { final: 2, semi_final: 1.5 }, joker: 1, advances: 10 },
    ],
    teams: teams(otters, herons),
    matches: [
      { ...match, key: "semi", home: away, away: home, round: 6, stage: "semi_final" },
      { ...match, key: "final", home, away, round: 7, stage: "final", ...final },
    ],
  });
}

function importHoops(result: object = {}): Promise<string> {
  const [home, away] = [slugOf(falcons), slugOf(giants)];
  const match = { venue: "Fairview Hall", start_time: soon(), status: "scheduled", round: 3, stage: "semi_final" };
  return importDocument({
    sport: { slug: `basketball_${run}`, name: "Basketball", draws_allowed: false, max_score: 299 },
    tournament: { slug: `hoops_${run}`, name: hoops, rule_set: `hoops_${run}` },
    rule_sets: [{ slug: `hoops_${run}`, name: "Hoops", margin: { within: 5, points: 25 }, stake: 10 }],
    teams: teams(falcons, giants),
    matches: [{ ...match, key: "semi", home, away, knockout: true, ...result }],
  });
}

async function open(page: Page, tournament: string, match: RegExp): Promise<void> {
  await page.goto("/#/");
  await page.getByRole("combobox", { name: "Tournament" }).selectOption({ label: tournament });
  await page.getByRole("link", { name: match }).filter({ visible: true }).first().click();
  await shown(page.getByRole("heading", { level: 1, name: match }));
}

beforeAll(async () => {
  stage = await Stage.open();
  await importCup();
  await importHoops();
  ida = await stage.device({ viewport: phone, reducedMotion: "reduce" });
  jon = await stage.device({ viewport: desktop, reducedMotion: "reduce" });
  await logIn(ida.page, `+1555${randomInt(1_000_000, 9_999_999)}`, `ida.${run}`);
  await logIn(jon.page, `+1555${randomInt(1_000_000, 9_999_999)}`, `jon.${run}`);
}, 180_000);
afterAll(() => stage?.close());

describe("knockout match", () => {
  test("list shows the stage and the multiplier", async () => {
    const { page } = ida;
    await page.getByRole("combobox", { name: "Tournament" }).selectOption({ label: cup });
    await shown(page.getByRole("heading", { level: 4, name: `${cup} · Final points count double` }));
    await shown(page.getByRole("heading", { level: 4, name: `${cup} · Semi-final points count 1.5 times` }));
    await check(page, "list");
  });

  test("final is predicted with the team that wins it and a joker", async () => {
    for (const { page } of [ida, jon]) {
      await open(page, cup, /Lakeside Otters.*Reedbank Herons/);
      const own = form(page);
      await shown(own.getByText("Final: points count double"));
      await own.getByRole("radio", { name: "Draw" }).check();
      await own.getByRole("button", { name: "Add a score" }).click();
      const winner = own.getByRole("group", { name: /Who wins the final\?/ });
      await winner.getByRole("radio", { name: page === ida.page ? otters : herons }).check();
      // docs/points.md: a right draw at 50% wins 35 points, or 55 with the exact score; a wrong one loses 5. All count double.
      await shown(own.locator(".stake").filter({ hasText: /right\s*\+70.*score\s*\+110.*final\s*\+20.*wrong\s*−10/s }));
      await shown(own.getByText("Includes ×2 for this match."));
      await shown(own.getByText("You have 1 joker per tournament."));
      if (page === ida.page) {
        await own.getByRole("switch", { name: /Play a joker/ }).click();
        await shown(
          own.locator(".stake").filter({ hasText: /right\s*\+140.*score\s*\+220.*final\s*\+40.*wrong\s*−20/s }),
        );
        await shown(own.getByText("Includes ×2 for this match and ×2 for your joker."));
      }
      await check(page, "final-form");
      if (page === ida.page) {
        await page.setViewportSize({ width: 320, height: 700 });
        await check(page, "final-form");
        await page.setViewportSize(phone);
      }
      await own.getByRole("button", { name: "Save prediction" }).click();
    }
    await shown(form(ida.page).getByText(`Saved: Draw 1–1, 50% · ${otters} to win the final · Joker.`));
    await shown(form(jon.page).getByText(`Saved: Draw 1–1, 50% · ${herons} to win the final.`));
    await ida.page.reload();
    await shown(ida.page.getByRole("switch", { name: /Play a joker/, checked: true }));
    expect(await ida.page.getByRole("group", { name: /final/ }).getByRole("radio").first().isChecked()).toBe(true);
  });

  test("team to advance can be cleared and may differ from the pick", async () => {
    const { page } = jon;
    await open(page, cup, /Reedbank Herons.*Lakeside Otters/);
    const own = form(page);
    await shown(own.getByText("Semi-final: points count 1.5 times"));
    await own.getByRole("radio", { name: herons }).first().check();
    const advances = own.getByRole("group", { name: /Who advances\?/ });
    await advances.getByRole("radio", { name: otters }).check();
    await advances.getByRole("button", { name: "Clear choice" }).click();
    expect(await advances.getByRole("radio", { checked: true }).count()).toBe(0);
    await advances.getByRole("radio", { name: otters }).check();
    await own.getByRole("button", { name: "Save prediction" }).click();
    await shown(own.getByText(`Saved: ${herons}, 50% · ${otters} to advance.`));
  });

  test("second joker in a tournament is refused with a way out", async () => {
    const { page } = ida;
    await open(page, cup, /Reedbank Herons.*Lakeside Otters/);
    const own = form(page);
    await own.getByRole("radio", { name: herons }).first().check();
    const joker = own.getByRole("switch", { name: /Play a joker/ });
    await joker.click();
    await own.getByRole("button", { name: "Save prediction" }).click();
    await shown(own.getByRole("alert").filter({ hasText: "You have no joker left in this tournament." }));
    await check(page, "no-joker-left");
    await joker.click();
    await own.getByRole("button", { name: "Save prediction" }).click();
    await shown(own.getByText(`Saved: ${herons}, 50%.`));
    expect(await own.getByRole("alert").count()).toBe(0);
  });
});

test("basketball is predicted with numbers and without a draw", async () => {
  for (const { page } of [ida, jon]) {
    await open(page, hoops, /Fairview Falcons.*Granite Giants/);
    const own = form(page);
    await shown(own.getByRole("radio", { name: falcons }));
    expect(await own.getByRole("radio").count()).toBe(2);
    expect(await own.getByRole("switch").count()).toBe(0);
    const [home, away] = [own.getByLabel(`Score for ${falcons}`), own.getByLabel(`Score for ${giants}`)];
    const save = own.getByRole("button", { name: "Save prediction" });
    await home.fill("104");
    await shown(own.getByText("Enter both scores, or leave both empty."));
    expect(await save.isDisabled()).toBe(true);
    await away.fill("104");
    await shown(own.getByText("Basketball has no draws. Change one of the scores."));
    expect(await save.isDisabled()).toBe(true);
    await away.fill("999");
    await shown(own.getByText("The highest score is 299."));
    expect(await isOnTop(away), "field above the save bar").toBe(true);
    await check(page, "basketball-hint");
    await away.fill("112");
    expect(await own.getByRole("radio", { name: giants }).isChecked()).toBe(true);
    await own.getByLabel("How sure are you?").fill("0");
    await shown(
      own
        .locator(".stake")
        .filter({ hasText: /right\s*\+20.*within 5\s*\+25.*margin\s*\+30.*score\s*\+40.*advances\s*\+10.*wrong\s*0/s }),
    );
    await check(page, "basketball-form");
    await save.click();
    await shown(own.getByText(`Saved: ${giants} 104–112.`));
  }
  // The team to advance follows the pick.
  const id = Number(new URL(jon.page.url()).hash.split("/").at(-1));
  const saved = await jon.page.evaluate(async (id) => {
    const headers = { Authorization: `Bearer ${localStorage.getItem("matchday.token")}` };
    const response = await fetch("/api/auth/predictions?per_page=100", { headers });
    const { data } = (await response.json()) as { data: { event_id: number; advances: string | null }[] };
    return data.find(({ event_id }) => event_id === id)?.advances;
  }, id);
  expect(saved).toBe("away");
});

describe("result", () => {
  test("leaderboard of a round shows its winner as soon as it is complete", async () => {
    const { page } = jon;
    await page.goto("/#/table");
    await page.getByRole("combobox", { name: "Leaderboard" }).selectOption({ label: cup });
    await page.getByRole("combobox", { name: "Round" }).selectOption({ label: "Round 7: Final" });
    await shown(page.getByText("Round 7 isn't finished yet."));
    await check(page, "round-open");
    await importCup({ start_time: justNow(), status: "finished", home_score: 1, away_score: 1, advanced: "home" });
    await importHoops({
      start_time: justNow(),
      status: "finished",
      home_score: 101,
      away_score: 114,
      advanced: "away",
    });
    await shown(page.getByText("Winner of round 7"), 60_000);
    await shown(
      page
        .getByRole("status")
        .filter({ hasText: `ida.${run}` })
        .filter({ hasText: "260 points" }),
    );
    await shown(page.getByText(/You're 2nd of 2 with 110 points/));
    await check(page, "round");
    await page.setViewportSize(phone);
    await check(page, "round");
    await page.setViewportSize(desktop);
    await page.getByRole("combobox", { name: "Round" }).selectOption({ label: "Round 6: Semi-final" });
    await shown(page.getByText("Round 6 isn't finished yet."));
    await page.getByRole("combobox", { name: "Round" }).selectOption({ label: "All rounds" });
    await shown(page.getByRole("radio", { name: "This month" }));
  });

  test("scoreboard names the winner, and every part of the points is explained", async () => {
    const { page } = ida;
    for (const { page } of [ida, jon]) {
      await page.goto("/#/");
      await page.getByRole("combobox", { name: "Tournament" }).selectOption({ label: cup });
      if (page === ida.page) await page.getByRole("radio", { name: "Results" }).check();
      const results = page.getByRole("region", { name: "Results" });
      await results.getByRole("link", { name: /Lakeside Otters advanced.*Reedbank Herons/ }).click();
      await shown(score(page).getByText("Won the final"));
    }
    const own = page.getByRole("region", { name: "Your prediction" });
    await shown(own.getByText("+260 points"));
    await shown(own.getByText(`${otters} to win the final`));
    const parts = own.locator(".why li");
    await shown(parts.first());
    expect((await parts.allTextContents()).map((text) => text.match(/[+−]?\d+$/)?.[0])).toEqual([
      "+20",
      "+20",
      "+15",
      "+10",
      "+65",
      "+130",
    ]);
    await shown(own.getByText("Your joker doubled all points of this match."));
    await page.getByRole("radio", { name: "Chat" }).check();
    await shown(page.locator(".announcement").filter({ hasText: `Round 7 of ${cup} is complete: ida.${run} won it` }));
    await check(page, "round-in-chat");
    await page.getByRole("radio", { name: "Prediction" }).check();
    await check(page, "final-explained");
    await check(jon.page, "final-explained");
    await expect.poll(() => jon.page.locator(".earned").textContent()).toBe("+110 points");
  });

  test("three-digit score fits on a small phone", async () => {
    const { page } = ida;
    await page.goto("/#/");
    await page.getByRole("combobox", { name: "Tournament" }).selectOption({ label: hoops });
    await page.getByRole("radio", { name: "Results" }).check();
    await page.getByRole("region", { name: "Results" }).getByRole("link").click();
    await shown(score(page).getByText("Advanced"));
    await shown(page.getByText(/Your winning margin was off by 5/));
    await check(page, "basketball-explained");
    for (const width of [320, 390]) {
      await page.setViewportSize({ width, height: 700 });
      const [digits, names] = [score(page).locator(".digit"), score(page).locator(".board-team bdi")];
      const box = async (locator: Locator) => (await locator.boundingBox()) ?? { x: 0, width: 0 };
      const [left, right] = [await box(digits.first()), await box(digits.last())];
      const [home, away] = [await box(names.first()), await box(names.last())];
      expect(home.x + home.width).toBeLessThanOrEqual(left.x);
      expect(right.x + right.width).toBeLessThanOrEqual(away.x);
      await check(page, "basketball-small");
    }
    expect([...ida.faults, ...jon.faults]).toEqual([]);
  });
});
