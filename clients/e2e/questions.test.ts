import { randomInt } from "node:crypto";
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { check } from "./look.js";
import { type ApiFan, type Device, logIn, logInByApi, runCommand, Stage } from "./stage.js";

// Bonus questions of two tournaments, in order: each test builds on the state that the previous ones left. Uma uses a phone, Val
// a desktop and Wes the API. SHOTS_TO=FOLDER saves screenshots.
const run = randomInt(100_000, 999_999);
const phone = { width: 390, height: 844 };
const small = { width: 320, height: 700 };
const desktop = { width: 1280, height: 900 };
const [cup, league] = [`Orchard Cup ${run}`, `Orchard League ${run}`];
const teams = ["Appleby", "Pearmain Athletic", "Quince Park", "Damson Town"];
const many = Array.from({ length: 14 }, (_, index) => `Orchard ${String.fromCharCode(65 + index)} United`);
const newPhone = () => `+1555${randomInt(1_000_000, 9_999_999)}`;

const texts = {
  scorer: "Who scores the most goals in the cup?",
  pair: "Which two players score in round 1?",
  winner: "Who wins the cup?",
  goals: "How many goals are scored in round 1?",
  first: "Which team scores first?",
  corners: "How many corners does the match have?",
  card: "Is a player sent off?",
  late: "Does it rain at kick-off?",
  void: "Which mascot wins the race?",
  champion: "Who wins the league?",
  long: `Which of these teams has the longest name of all the teams that ever played in the ${"Donaudampfschifffahrts".repeat(3)}pokal, and why does a question need so many words on a small phone?`,
};

let stage: Stage;
let uma: Device;
let val: Device;
let wes: ApiFan;

const shown = (locator: Locator, timeout = 20_000) => locator.waitFor({ state: "visible", timeout });
const gone = (locator: Locator) => locator.waitFor({ state: "detached", timeout: 20_000 });
const time = (offset: number) => new Date(Date.now() + offset).toISOString().replace(/\.\d+Z$/, "Z");
const [hour, day] = [3_600_000, 86_400_000];
const starts = time(2 * day);
const slugOf = (name: string) => `${name.toLowerCase().replaceAll(" ", "_")}_${run}`;
const option = (key: string, label: string) => ({ key, label });
const players = [
  option("ada", "Ada Obi"),
  option("bea", "Bea Lind"),
  option("cay", "Cay Moreau"),
  option("noa", "נועה לוי"),
];

/** An open question is a form, and a closed one a region. Both have the text as their name. */
const open = (page: Page, text: string) => page.getByRole("form", { name: text });
const closed = (page: Page, text: string) => page.getByRole("region", { name: text });

const questions = {
  scorer: { kind: "choice", points: 50, options: players, locks_at: time(3 * hour + 60_000) },
  pair: { kind: "several_of", points: 10, pick: 2, options: players, round: 1, locks_at: time(day - hour) },
  winner: { kind: "team", points: 100, locks_at: time(2 * day) },
  goals: { kind: "number", points: 30, scoring: "nearest", round: 1, locks_at: time(2 * day) },
  first: { kind: "team", points: 15, match: "first" },
  corners: { kind: "number", points: 20, match: "first" },
  card: { kind: "choice", points: 5, match: "first", options: [option("yes", "Yes"), option("no", "No")] },
  late: { kind: "choice", points: 5, options: [option("yes", "Yes"), option("no", "No")], locks_at: time(3 * day) },
  void: { kind: "choice", points: 5, options: [option("bee", "Bee"), option("owl", "Owl")], locks_at: time(3 * day) },
};
type Key = keyof typeof questions;

/** Imports the cup, with changes to some of its questions. */
async function importCup(changes: Partial<Record<Key, object>> = {}): Promise<void> {
  const match = { venue: "Orchard Ground", start_time: starts, status: "scheduled" };
  const [a, b, c, d] = teams.map(slugOf);
  await runCommand(
    ["fixtures", "import", "-"],
    JSON.stringify({
      sport: { slug: "football", name: "Football" },
      tournament: { slug: `orchard_cup_${run}`, name: cup },
      teams: teams.map((name) => ({ slug: slugOf(name), name, country: "Anywhere", founded: 1900 })),
      matches: [
        { ...match, key: "first", home: a, away: b, round: 1 },
        { ...match, key: "second", home: c, away: d, round: 1 },
      ],
      questions: (Object.keys(questions) as Key[]).map((key) => ({
        key,
        text: texts[key],
        ...questions[key],
        ...changes[key],
      })),
    }),
  );
}

/** Imports a league with many teams and a long question. */
async function importLeague(): Promise<void> {
  const match = { venue: "Orchard Ground", start_time: starts, status: "scheduled" };
  const slugs = many.map(slugOf);
  const longest = "Verein für Bewegungsspiele und Leibesübungen am Alten Obstgarten 1899 e. V., zweite Mannschaft";
  await runCommand(
    ["fixtures", "import", "-", "--no-wait"],
    JSON.stringify({
      sport: { slug: "football", name: "Football" },
      tournament: { slug: `orchard_league_${run}`, name: league },
      teams: many.map((name) => ({ slug: slugOf(name), name, country: "Anywhere", founded: 1900 })),
      matches: Array.from({ length: 7 }, (_, index) => ({
        ...match,
        key: `match-${index}`,
        home: slugs[2 * index],
        away: slugs[2 * index + 1],
      })),
      questions: [
        { key: "champion", text: texts.champion, kind: "team", points: 1000, locks_at: time(2 * day) },
        {
          key: "long",
          text: texts.long,
          kind: "several_of",
          points: 1000,
          pick: 3,
          locks_at: time(2 * day),
          options: [
            option("a", longest),
            option("b", "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch"),
            option("c", "نادي البستان القديم الرياضي"),
            option("d", "FC"),
          ],
        },
      ],
    }),
  );
}

async function openQuestions(page: Page, tournament: string): Promise<void> {
  await page.goto("/#/questions");
  await shown(page.getByRole("heading", { level: 1, name: "Bonus questions" }));
  await page.getByRole("combobox", { name: "Tournament" }).selectOption({ label: tournament });
}

async function openMatch(page: Page): Promise<void> {
  await page.goto("/#/");
  await page.getByRole("combobox", { name: "Tournament" }).selectOption({ label: cup });
  await page
    .getByRole("link", { name: /Appleby.*Pearmain/ })
    .filter({ visible: true })
    .first()
    .click();
  await shown(page.getByRole("heading", { level: 2, name: "Bonus questions" }));
}

async function save(form: Locator, button = "Save answer"): Promise<void> {
  await form.getByRole("button", { name: button }).click();
  await gone(form.getByRole("button", { name: /Sav/ }));
  await shown(form.getByText("Saved", { exact: true }));
}

/** Answers questions of the cup as Wes. */
async function answerAsWes(answers: Partial<Record<Key, unknown>>): Promise<void> {
  const { data: tournaments } = await wes.request<{ data: { id: number; name: string }[] }>(
    "/api/auth/tournaments?per_page=100",
  );
  const id = tournaments.find(({ name }) => name === cup)?.id;
  const { data } = await wes.request<{ data: { id: number; text: string }[] }>(
    `/api/auth/questions?tournament_id=${id}&per_page=100`,
  );
  for (const [key, answer] of Object.entries(answers)) {
    const question = data.find(({ text }) => text === texts[key as Key]);
    await wes.request(`/api/auth/questions/${question?.id}/answer`, "PUT", { answer });
  }
}

/** Checks a page on the small phone too, and returns to the phone. */
async function checkSmall(page: Page, where: string): Promise<void> {
  await page.setViewportSize(small);
  await check(page, where);
  await page.setViewportSize(phone);
}

beforeAll(async () => {
  stage = await Stage.open();
  await importCup();
  await importLeague();
  uma = await stage.device({ viewport: phone, reducedMotion: "reduce" });
  val = await stage.device({ viewport: desktop, reducedMotion: "reduce" });
  await logIn(uma.page, newPhone(), `uma.${run}`);
  await logIn(val.page, newPhone(), `val.${run}`);
  wes = await logInByApi(newPhone(), `wes.${run}`);
}, 180_000);
afterAll(() => stage?.close());

describe("open questions", () => {
  test("list of matches shows how many wait for an answer", async () => {
    for (const { page } of [uma, val]) {
      const link = page.getByRole("link", { name: /Bonus questions/ });
      await shown(link.filter({ hasText: /First locks in 3 hours.*\d+ to answer/ }));
      await check(page, "matches");
      await link.click();
      await shown(page.getByRole("heading", { level: 1, name: "Bonus questions" }));
      await page.getByRole("combobox", { name: "Tournament" }).selectOption({ label: cup });
      await shown(page.getByText("9 to answer"));
      await shown(open(page, texts.scorer).getByText("Locks in 3 hours"));
      await check(page, "questions");
    }
    await checkSmall(uma.page, "questions");
  });

  test("one of several options is saved and replaced", async () => {
    const form = open(uma.page, texts.scorer);
    await shown(form.getByText("50 points"));
    await form.getByRole("radio", { name: "Ada Obi" }).check();
    await shown(form.getByText("Not saved", { exact: true }));
    await save(form);
    await shown(form.getByText("Saved: Ada Obi."));
    await shown(uma.page.getByText("8 to answer"));
    // The focused button is gone, so the focus must not be lost.
    expect(await form.getByRole("heading").evaluate((heading) => heading === document.activeElement)).toBe(true);
    await form.getByRole("radio", { name: "Bea Lind" }).check();
    await shown(form.getByText("Saved so far: Ada Obi."));
    await form.getByRole("button", { name: "Undo" }).click();
    await shown(form.getByText("Saved: Ada Obi."));
    await form.getByRole("radio", { name: "Bea Lind" }).check();
    await save(form, "Save changes");
    await shown(form.getByText("Saved: Bea Lind."));
  });

  test("several options are saved only with the right number", async () => {
    const form = open(uma.page, texts.pair);
    await shown(form.getByText("Pick 2 of 4."));
    await shown(form.getByText("10 points per right pick"));
    const submit = form.getByRole("button", { name: "Save answer" });
    await form.getByRole("checkbox", { name: "Ada Obi" }).check();
    await shown(form.getByText("Pick 1 more."));
    expect(await submit.isDisabled()).toBe(true);
    await form.getByRole("checkbox", { name: "Cay Moreau" }).check();
    await form.getByRole("checkbox", { name: "נועה לוי" }).check();
    await shown(form.getByText("Remove 1: this question takes 2 picks."));
    expect(await submit.isDisabled()).toBe(true);
    await check(uma.page, "questions-several");
    await form.getByRole("checkbox", { name: "נועה לוי" }).uncheck();
    await save(form);
    await shown(form.getByText("Saved: Ada Obi and Cay Moreau."));
  });

  test("team is a card, or an entry of a list in a large tournament", async () => {
    const { page } = uma;
    const form = open(page, texts.winner);
    await shown(form.getByRole("radio", { name: "Appleby" }));
    expect(await form.getByRole("radio").count()).toBe(4);
    await form.getByRole("radio", { name: "Quince Park" }).check();
    await save(form);
    await shown(form.getByText("Saved: Quince Park."));
    await openQuestions(page, league);
    const champion = open(page, texts.champion);
    await champion.getByRole("combobox", { name: "Your answer" }).selectOption({ label: many[3] ?? "" });
    await save(champion);
    await shown(champion.getByText(`Saved: ${many[3]}.`));
    const long = open(page, texts.long);
    for (const box of (await long.getByRole("checkbox").all()).slice(0, 3)) await box.check();
    await check(page, "questions-long");
    await checkSmall(page, "questions-long");
    await page.setViewportSize(desktop);
    await check(page, "questions-long");
    await page.setViewportSize(phone);
    await save(long);
  });

  test("number says what counts and has a limit", async () => {
    const { page } = uma;
    await openQuestions(page, cup);
    const form = open(page, texts.goals);
    await shown(form.getByText("The nearest number wins."));
    const field = form.getByLabel("Your answer");
    expect(await field.getAttribute("inputmode")).toBe("numeric");
    await field.fill("1000001");
    await shown(form.getByText("The highest number is 1,000,000."));
    expect(await form.getByRole("button", { name: "Save answer" }).isDisabled()).toBe(true);
    await check(page, "questions-number");
    await field.fill("7 goals");
    expect(await field.inputValue()).toBe("7");
    await field.press("Enter");
    await shown(form.getByText("Saved: 7."));
  });

  test("answers are there after a reload", async () => {
    const { page } = uma;
    await page.reload();
    await shown(open(page, texts.scorer).getByText("Saved: Bea Lind."));
    expect(await open(page, texts.scorer).getByRole("radio", { name: "Bea Lind" }).isChecked()).toBe(true);
    const pair = open(page, texts.pair).getByRole("checkbox", { checked: true });
    expect(await pair.count()).toBe(2);
    await shown(open(page, texts.winner).getByText("Saved: Quince Park."));
    expect(await open(page, texts.goals).getByLabel("Your answer").inputValue()).toBe("7");
    await shown(page.getByText("5 to answer"));
    await page.evaluate(() => scrollTo(0, 0));
    await check(page, "questions-answered");
  });

  test("match page has the questions on the match", async () => {
    for (const { page } of [uma, val]) {
      await openMatch(page);
      const first = open(page, texts.first);
      expect(await first.getByRole("radio").count()).toBe(2);
      await shown(open(page, texts.corners).getByText("Only the exact number counts."));
      expect(await open(page, texts.winner).count()).toBe(0);
      await first.getByRole("radio", { name: page === uma.page ? "Appleby" : "Pearmain Athletic" }).check();
      await check(page, "match-form");
      await save(first);
      await open(page, texts.corners)
        .getByLabel("Your answer")
        .fill(page === uma.page ? "9" : "11");
      await save(open(page, texts.corners));
      await check(page, "match-saved");
    }
    await checkSmall(uma.page, "match-saved");
  });
});

describe("failures", () => {
  test("overload is explained, and the answer can be saved again", async () => {
    const { page } = val;
    await openQuestions(page, cup);
    const form = open(page, texts.scorer);
    await shown(form);
    await page.route("**/api/auth/questions/*/answer", (route) =>
      route.fulfill({
        status: 503,
        headers: { "Retry-After": "20" },
        json: { code: "overloaded", message: "The server is overloaded. Try again later.", request_id: "r-1" },
      }),
    );
    await form.getByRole("radio", { name: "Ada Obi" }).check();
    await form.getByRole("button", { name: "Save answer" }).click();
    const alert = form.getByRole("alert");
    await shown(
      alert.filter({ hasText: "Your answer isn't saved. The server is overloaded. Try again in 20 seconds." }),
    );
    await check(page, "questions-overload");
    await page.unroute("**/api/auth/questions/*/answer");
    await form.getByRole("button", { name: "Try again" }).click();
    await shown(form.getByText("Saved: Ada Obi."));
    expect(await alert.count()).toBe(0);
  });

  test("offline fan can retry", async () => {
    const { page, context } = uma;
    await openQuestions(page, cup);
    const form = open(page, texts.scorer);
    await shown(form.getByText("Saved: Bea Lind."));
    await context.setOffline(true);
    await form.getByRole("radio", { name: "Cay Moreau" }).check();
    await form.getByRole("button", { name: "Save changes" }).click();
    await shown(form.getByRole("alert").filter({ hasText: "Your answer isn't saved. You're offline." }));
    await check(page, "questions-offline");
    await context.setOffline(false);
    await form.getByRole("button", { name: "Try again" }).click();
    await shown(form.getByText("Saved: Cay Moreau."));
  });

  test("question that locks before the fan saves keeps the draft visible", async () => {
    for (const { page } of [uma, val]) {
      await openQuestions(page, cup);
      await open(page, texts.late).getByRole("radio", { name: "Yes" }).check();
    }
    await importCup({ late: { locks_at: time(-1000) } });
    for (const { page } of [uma, val]) {
      await open(page, texts.late).getByRole("button", { name: "Save answer" }).click();
      const card = closed(page, texts.late);
      await shown(
        card.getByRole("alert").filter({ hasText: "This question is closed. Your answer Yes wasn't saved." }),
      );
      await shown(card.getByText("You didn't answer"));
      await card.scrollIntoViewIfNeeded();
      await check(page, "questions-locked");
      await card.getByRole("button", { name: "OK" }).click();
      await gone(card.getByRole("alert"));
    }
  });

  test("question locks on the page without a reload", async () => {
    const { page } = val;
    const fair = { locks_at: time(15_000) };
    await importCup({ late: fair });
    await openQuestions(page, cup);
    await page.reload();
    await shown(open(page, texts.late).getByText("Locks in less than a minute"));
    await shown(closed(page, texts.late).getByText("Locked"), 30_000);
    questions.late = { ...questions.late, ...fair };
  });
});

describe("closed questions", () => {
  const over = () => time(-1000);

  test("locked question shows all answers", async () => {
    await answerAsWes({ scorer: "ada", pair: ["ada", "bea"], goals: 12, corners: 9, void: "owl" });
    questions.scorer.locks_at = over();
    await importCup();
    for (const { page } of [uma, val]) {
      await openQuestions(page, cup);
      await page.reload();
      const card = closed(page, texts.scorer);
      await shown(card.getByText("Locked"));
      await shown(card.getByText("Not known yet"));
      await card.getByText("How fans answered").click();
      await shown(card.getByRole("listitem").filter({ hasText: "Ada Obi" }).getByText(/67%/));
      await shown(card.getByRole("listitem").filter({ hasText: "Cay Moreau" }).getByText(/33%/));
      const own = page === uma.page ? "Cay Moreau" : "Ada Obi";
      await shown(card.getByRole("listitem").filter({ hasText: own }).getByText("You", { exact: true }));
      await card.scrollIntoViewIfNeeded();
      await check(page, "questions-distribution");
    }
  });

  test("resolved questions show the points and the right answers", async () => {
    await importCup({
      scorer: { resolution: ["cay", "bea"] },
      pair: { resolution: ["ada"] },
      winner: { resolution: [slugOf("Damson Town")] },
      goals: { resolution: 8 },
      first: { resolution: [slugOf("Appleby")] },
      corners: { resolution: 9 },
      card: { resolution: ["no"] },
      void: { void: true },
    });
    const { page } = uma;
    await openQuestions(page, cup);
    await page.reload();
    await shown(page.getByText("No open questions."));
    const scorer = closed(page, texts.scorer);
    await shown(scorer.getByText("+50 points"));
    await shown(scorer.getByText("Bea Lind and Cay Moreau"));
    const pair = closed(page, texts.pair);
    await shown(pair.getByText("+10 points"));
    await shown(pair.locator(".tag.good").filter({ hasText: "Ada Obi" }).first());
    await shown(pair.locator(".tag.bad").filter({ hasText: "Cay Moreau" }));
    const winner = closed(page, texts.winner);
    await shown(winner.getByText("0 points", { exact: true }));
    await shown(winner.locator("dd").filter({ hasText: "Damson Town" }));
    const goals = closed(page, texts.goals);
    await shown(goals.getByText("+30 points"));
    await goals.getByText("How fans answered").click();
    await shown(goals.getByRole("listitem").filter({ hasText: "12" }).getByText(/50%/));
    await shown(closed(page, texts.first).getByText("+15 points"));
    await shown(closed(page, texts.card).getByText("0 points", { exact: true }));
    await shown(closed(page, texts.card).getByText("You didn't answer"));
    await shown(page.getByText("125 points won"));
    await shown(closed(page, texts.void).getByText("This question doesn't count. No points are awarded."));
    await page.evaluate(() => scrollTo(0, 0));
    await check(page, "questions-resolved");
    await checkSmall(page, "questions-resolved");
    await page.setViewportSize(desktop);
    await check(page, "questions-resolved");
    await page.setViewportSize(phone);
  });

  test("match page shows the outcome, and the leaderboard the points", async () => {
    for (const { page } of [uma, val]) {
      await openMatch(page);
      const corners = closed(page, texts.corners);
      await shown(corners.getByText(page === uma.page ? "+20 points" : "0 points", { exact: true }));
      await shown(corners.getByRole("listitem").filter({ hasText: "Right" }).getByText(/67%/));
      await check(page, "match-resolved");
    }
    const { page } = uma;
    await page.goto("/#/table");
    await page.getByRole("combobox", { name: "Leaderboard" }).selectOption({ label: cup });
    await expect
      .poll(
        async () => {
          await page.reload();
          await shown(page.getByRole("table"));
          return page
            .getByRole("row")
            .filter({ hasText: `uma.${run}` })
            .first()
            .textContent();
        },
        { timeout: 60_000, interval: 2_000 },
      )
      .toMatch(/125/);
    expect([...uma.faults, ...val.faults]).toEqual([]);
  });
});
