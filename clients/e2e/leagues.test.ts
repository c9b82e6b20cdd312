import { randomInt } from "node:crypto";
import type { Locator, Page, Route } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { check } from "./look.js";
import { type ApiFan, codeOf, type Device, logIn, logInByApi, runCommand, Stage } from "./stage.js";

// A league of friends, in order: each test builds on the state that the previous ones left. Olu owns it and uses a phone, Pia
// joins by the invite link on a desktop, Quin uses the API. SHOTS_TO=FOLDER saves screenshots.
const run = randomInt(100_000, 999_999);
const phone = { width: 390, height: 844 };
const desktop = { width: 1280, height: 900 };
const cup = `Harvest Cup ${run}`;
const [mills, barns] = ["Mill Street", "Barn End"];
const office = `Office League ${run}`;
const newPhone = () => `+1555${randomInt(1_000_000, 9_999_999)}`;
const [oluName, piaName, quinName] = [`olu.${run}`, `pia.${run}`, `quin.${run}`];
const piaPhone = newPhone();

let stage: Stage;
let olu: Device;
let pia: Device;
let quin: ApiFan;
let link: string;
let leagueId: number;

const shown = (locator: Locator, timeout = 20_000) => locator.waitFor({ state: "visible", timeout });
const soon = () => new Date(Date.now() + 86_400_000).toISOString().replace(/\.\d+Z$/, "Z");
/** Kick-off of a match that ends now. Predictions that were made before this moment count. */
const justNow = () => new Date().toISOString().replace(/\.\d+Z$/, "Z");
const slugOf = (name: string) => `${name.toLowerCase().replaceAll(" ", "_")}_${run}`;
const row = (page: Page, name: string) => page.getByRole("table").getByRole("row").filter({ hasText: name });
const cellsOf = (page: Page, name: string) => row(page, name).getByRole("cell").allTextContents();
const codeIn = (link: string) => link.split("/").at(-1) ?? "";

type Results = Partial<Record<1 | 2, [number, number]>>;
const results: Results = {};

/** Imports the three rounds of the cup, with the results so far. */
async function importCup(added: Results = {}): Promise<void> {
  const isFinishing = Object.keys(added).length > 0;
  // The start has whole seconds, and predictions of the same second would be late.
  if (isFinishing) await new Promise((done) => setTimeout(done, 1_100));
  const starts = isFinishing ? justNow() : soon();
  const match = (round: 1 | 2 | 3) => {
    const score = round === 3 ? undefined : { ...results, ...added }[round];
    const isNew = round !== 3 && added[round] !== undefined;
    return {
      key: `round-${round}`,
      home: slugOf(mills),
      away: slugOf(barns),
      venue: "Harvest Field",
      round,
      start_time: isNew ? starts : soon(),
      status: score ? "finished" : "scheduled",
      home_score: score?.[0] ?? null,
      away_score: score?.[1] ?? null,
    };
  };
  // A finished match keeps its start, so it is not imported again.
  const rounds = ([1, 2, 3] as const).filter((round) => round === 3 || !results[round]);
  await runCommand(
    ["fixtures", "import", "-"],
    JSON.stringify({
      sport: { slug: "football", name: "Football" },
      tournament: { slug: `harvest_${run}`, name: cup },
      teams: [mills, barns].map((name) => ({ slug: slugOf(name), name, country: "Anywhere", founded: 1900 })),
      matches: rounds.map(match),
    }),
  );
  Object.assign(results, added);
}

/** Sends a request to the API as the fan of this page. */
function api<T>(page: Page, path: string, method = "GET", body?: object): Promise<T> {
  return page.evaluate(
    async ({ path, method, body }) => {
      const headers = {
        Authorization: `Bearer ${localStorage.getItem("matchday.token")}`,
        "Content-Type": "application/json",
      };
      const response = await fetch(path, { method, headers, ...(body && { body: JSON.stringify(body) }) });
      if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
      return response.json();
    },
    { path, method, body },
  );
}

async function predict(page: Page, round: number, prediction: string, score: [number, number], confidence: number) {
  const { data: tournaments } = await api<{ data: { id: number; name: string }[] }>(
    page,
    "/api/auth/tournaments?per_page=100",
  );
  const id = tournaments.find(({ name }) => name === cup)?.id;
  const { data: matches } = await api<{ data: { id: number; round: number }[] }>(
    page,
    `/api/auth/events?tournament_id=${id}&per_page=100`,
  );
  const match = matches.find((match) => match.round === round);
  await api(page, "/api/auth/predictions", "POST", {
    event_id: match?.id,
    prediction,
    score_prediction: { home: score[0], away: score[1] },
    confidence,
  });
}

/** Marks the document, to notice a reload. */
const mark = (page: Page) => page.evaluate(() => Object.assign(window, { isSameDocument: true }));
const isMarked = (page: Page) => page.evaluate(() => "isSameDocument" in window);

beforeAll(async () => {
  stage = await Stage.open();
  await importCup();
  olu = await stage.device({
    viewport: phone,
    reducedMotion: "reduce",
    permissions: ["clipboard-read", "clipboard-write"],
  });
  // A desktop browser has no share sheet.
  await olu.context.addInitScript(() => {
    const shared: unknown[] = [];
    Object.assign(window, { shared });
    Object.assign(navigator, { share: async (data: unknown) => void shared.push(data) });
  });
  pia = await stage.device({ viewport: desktop, reducedMotion: "reduce" });
  await logIn(olu.page, newPhone(), oluName);
  quin = await logInByApi(newPhone(), quinName);
}, 180_000);
afterAll(() => stage?.close());

describe("first league", () => {
  test("fan without leagues is invited to create one or to enter a code", async () => {
    const { page } = olu;
    await page.getByRole("navigation").getByRole("link", { name: "Leagues" }).click();
    await shown(page.getByRole("heading", { level: 1, name: "Leagues" }));
    await shown(page.getByRole("heading", { name: "Play against your friends" }));
    await shown(page.getByRole("heading", { name: "Public leagues" }));
    await check(page, "leagues-empty");
    await page.setViewportSize(desktop);
    await check(page, "leagues-empty");
    await page.setViewportSize(phone);
    const field = page.getByLabel("Invite code or link");
    await field.fill("hello");
    await page.getByRole("button", { name: "Join", exact: true }).click();
    await shown(page.getByText("A code has eight letters and digits"));
    await field.fill("ABCD-2345");
    await page.getByRole("button", { name: "Join", exact: true }).click();
    await shown(page.getByText("No league has this code."));
    await check(page, "leagues-unknown-code");
  });

  test("a league needs only a name, and its only member can delete it", async () => {
    const { page } = olu;
    await page.getByRole("link", { name: "Create a league" }).click();
    const create = page.getByRole("button", { name: "Create league" });
    await shown(create);
    expect(await create.isDisabled()).toBe(true);
    await page.getByLabel("Name", { exact: true }).fill(`Quick ${run}`);
    await create.click();
    await shown(page.getByRole("heading", { level: 1, name: `Quick ${run}` }));
    await shown(page.getByText("You're 1st of 1"));
    await page.getByRole("button", { name: "Delete league" }).click();
    await shown(page.getByText("If you leave, the league is deleted."));
    await page.getByRole("button", { name: "Cancel" }).click();
    const opener = page.getByRole("button", { name: "Delete league" });
    expect(await opener.evaluate((element) => element === document.activeElement)).toBe(true);
    await opener.click();
    await page.getByRole("button", { name: "Delete league" }).click();
    await shown(page.getByText(`You left Quick ${run}.`));
    await shown(page.getByRole("heading", { name: "Play against your friends" }));
  });

  test("all options are set in the form", async () => {
    const { page } = olu;
    await page.getByRole("link", { name: "Create a league" }).click();
    await page.getByLabel("Name", { exact: true }).fill(office);
    for (const box of await page.getByRole("checkbox").all()) await box.uncheck();
    await shown(page.getByText("Choose at least one tournament."));
    const showAll = page.getByRole("button", { name: /Show all \d+ tournaments/ });
    if (await showAll.isVisible()) await showAll.click();
    await page.getByRole("checkbox", { name: cup }).check();
    await page.getByText("More options").click();
    await page.getByLabel("First round").selectOption({ label: "Start with round 1" });
    await page.getByRole("radio", { name: /Keep their points/ }).check();
    const size = page.getByLabel("Maximum number of members");
    await size.fill("1");
    await page.getByRole("button", { name: "Create league" }).click();
    await shown(page.getByRole("alert"));
    expect(await size.getAttribute("aria-invalid")).toBe("true");
    await check(page, "league-new");
    await page.setViewportSize(desktop);
    await check(page, "league-new");
    await page.setViewportSize(phone);
    await size.fill("3");
    await page.getByRole("button", { name: "Create league" }).click();
    await shown(page.getByRole("heading", { level: 1, name: office }));
    await shown(page.getByText("From round 1 on"));
    leagueId = Number(page.url().split("/").at(-1));
  });
});

describe("invitation", () => {
  test("link is copied and shared", async () => {
    const { page } = olu;
    const invite = page.getByRole("region", { name: "Share the link" });
    await shown(invite.getByText(/^[A-Z2-9]{4}-[A-Z2-9]{4}$/));
    link = await page.getByLabel("Invite link").inputValue();
    expect(link).toMatch(/^http:\/\/[^/]+\/join\/[A-HJKMNP-Z2-9]{8}$/);
    await invite.getByRole("button", { name: "Copy link" }).click();
    await shown(invite.getByRole("button", { name: "Copied ✓" }));
    await invite.getByRole("status").filter({ hasText: "Link copied" }).waitFor({ state: "attached" });
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(link);
    await invite.getByRole("button", { name: "Share…" }).click();
    const shared = await page.evaluate(() => (window as unknown as { shared: { url: string; text: string }[] }).shared);
    expect(shared).toEqual([{ title: office, text: `Join my league "${office}"`, url: link }]);
    await check(page, "league-new-invite");
  });

  test("link of a logged-out fan survives a reload, the login and the choice of a username", async () => {
    const { page } = pia;
    await page.goto(link);
    await shown(page.getByRole("heading", { name: "You're invited." }));
    await check(page, "invited");
    await page.setViewportSize(phone);
    await check(page, "invited");
    await page.setViewportSize(desktop);
    await page.reload();
    await shown(page.getByRole("heading", { name: "You're invited." }));
    await page.getByLabel("Phone number").fill(piaPhone);
    await page.getByRole("button", { name: "Send code" }).click();
    await shown(page.getByLabel(/Code sent to/));
    await page.getByLabel(/Code sent to/).fill(await codeOf(piaPhone));
    await page.getByText("Choose a username").click();
    await page.getByRole("textbox", { name: "Username" }).fill(piaName);
    await shown(page.getByText("The username is available."));
    await page.getByRole("button", { name: "Log in", exact: true }).click();
    await shown(page.getByText(`You joined ${office}.`));
    await shown(page.getByRole("heading", { level: 1, name: office }));
    await shown(row(page, piaName));
    await shown(row(page, oluName));
    // Going back must not lead to the invitation.
    expect(page.url()).toContain(`/#/leagues/${leagueId}`);
    await olu.page.reload();
    await shown(row(olu.page, piaName));
  });

  test("link opens the league for a member, and a pasted link joins", async () => {
    const { page } = pia;
    await page.goto(link);
    await shown(page.getByText(`You're already a member of ${office}.`));
    await shown(page.getByRole("heading", { level: 1, name: office }));
    expect(page.url()).toContain(`/#/leagues/${leagueId}`);

    await page.getByRole("button", { name: "Leave league" }).click();
    await shown(page.getByText("To join again, you need its link or code."));
    await page.getByRole("button", { name: "Leave league" }).click();
    await shown(page.getByText(`You left ${office}.`));
    await page.getByLabel("Invite code or link").fill(`Join my league! ${link}`);
    await page.getByRole("button", { name: "Join", exact: true }).click();
    await shown(page.getByText(`You joined ${office}.`));
    await shown(row(page, piaName));
  });

  test("refusals are explained", async () => {
    await quin.request("/api/auth/leagues/join", "POST", { code: codeIn(link) });
    const other = await stage.device({ viewport: phone, reducedMotion: "reduce" });
    const { page } = other;
    await logIn(page, newPhone(), `rae.${run}`);
    await page.goto(link);
    await shown(page.getByText("This league is full."));
    await check(page, "join-full");
    await page.setViewportSize(desktop);
    await check(page, "join-full");
    await page.setViewportSize(phone);
    await page.goto("/join/abcd-2345");
    await shown(page.getByText("No league has this code."));
    await page.goto("/join/nonsense!");
    await shown(page.getByText("No league has this code."));
    const refuse = async (status: number, body: object, headers: Record<string, string> = {}) => {
      const fulfil = (route: Route) => route.fulfill({ status, headers, json: body });
      await page.route("**/api/auth/leagues/join", fulfil);
      await page.goto(link);
    };
    await refuse(409, { code: "too_many_leagues", message: "Too many." });
    await shown(page.getByText("You're in as many leagues as possible."));
    await page.unroute("**/api/auth/leagues/join");
    await refuse(429, { code: "rate_limited", message: "Too many requests." }, { "Retry-After": "55" });
    await shown(page.getByText("Too many unknown codes. Try again in 55 seconds."));
    await check(page, "join-limited");
    await page.unroute("**/api/auth/leagues/join");
    await page.getByRole("button", { name: "Try again" }).click();
    await shown(page.getByText("This league is full."));
    expect(other.faults).toEqual([]);
    await other.context.close();
  });
});

describe("table", () => {
  test("changes live in both browsers when a match ends", async () => {
    await predict(olu.page, 1, "home", [2, 1], 50);
    for (const { page } of [olu, pia]) {
      await page.goto(`/#/leagues/${leagueId}`);
      await page.reload();
      await shown(row(page, quinName));
      await shown(page.getByText("You're 1st of 3 with 0 points."));
      await page.getByText("Connecting…").waitFor({ state: "detached" });
      await mark(page);
    }
    await importCup({ 1: [2, 1] });
    // docs/points.md: an exact score with 50% wins 55 points. Pia has not predicted the match.
    await shown(olu.page.getByText("You're 1st of 3 with 55 points."), 60_000);
    await shown(pia.page.getByText("You're 2nd of 3 with 0 points."), 60_000);
    await shown(row(pia.page, oluName).filter({ hasText: "55" }));
    for (const { page } of [olu, pia]) expect(await isMarked(page)).toBe(true);
  });

  test("shows who moved up and down", async () => {
    await predict(olu.page, 2, "home", [1, 0], 50);
    await predict(pia.page, 2, "away", [0, 1], 100);
    await importCup({ 2: [0, 1] });
    await shown(pia.page.getByText("You're 1st of 3 with 60 points."), 60_000);
    await shown(olu.page.getByText("You're 2nd of 3 with 50 points."), 60_000);
    await shown(row(pia.page, piaName).getByText("▲ 1"));
    await row(pia.page, piaName).getByText("up 1 place").waitFor({ state: "attached" });
    await row(olu.page, oluName).getByText("down 1 place").waitFor({ state: "attached" });
    for (const { page } of [olu, pia]) {
      expect(await isMarked(page)).toBe(true);
      await check(page, "league");
    }
    expect(await pia.page.getByRole("table").getByRole("row").nth(1).textContent()).toContain(piaName);
    expect(await row(pia.page, piaName).getAttribute("aria-current")).toBe("true");
    // Rank, movement, exact, correct of settled, points.
    expect((await cellsOf(pia.page, oluName)).slice(-3)).toEqual(["1", "1/2", "50"]);
  });

  test("of a round names its winner", async () => {
    for (const { page } of [olu, pia]) {
      await page.getByRole("combobox", { name: "Round" }).selectOption({ label: "Round 2" });
      await shown(page.getByRole("status").filter({ hasText: "Winner of round 2" }).filter({ hasText: piaName }));
      await check(page, "league-round");
      await page.getByRole("combobox", { name: "Round" }).selectOption({ label: "Round 3" });
      await shown(page.getByText("Round 3 isn't finished yet."));
      await page.getByRole("combobox", { name: "Round" }).selectOption({ label: "All rounds" });
      await shown(page.getByText(/You're (1st|2nd) of 3/));
    }
  });

  test("list of leagues has rank, points and members", async () => {
    for (const [{ page }, rank, points] of [
      [olu, "2nd", 50],
      [pia, "1st", 60],
    ] as const) {
      await page.goto("/#/leagues");
      const own = page.getByRole("region", { name: "Your leagues" }).getByRole("link", { name: office });
      await shown(own.filter({ hasText: rank }).filter({ hasText: `${points}points` }));
      await shown(own.getByText("3 members"));
      await check(page, "leagues");
    }
  });

  test("long table is loaded page by page, and shows the neighbours of the fan", async () => {
    const { page } = olu;
    const path = `**/api/auth/leagues/${leagueId}/table*`;
    const member = (rank: number) => ({
      rank,
      user: { id: 1_000_000 + rank, username: `fan_${rank}`, name: rank % 7 === 0 ? null : `Fan number ${rank}` },
      points: 500 - rank,
      exact: 3,
      correct: 9,
      settled: 20,
      movement: (rank % 5) - 2,
    });
    const members = (first: number) => Array.from({ length: 50 }, (_, index) => member(first + index));
    const { data } = await api<{ data: { me: object } }>(page, `/api/auth/leagues/${leagueId}/table`);
    const own = { ...data.me, rank: 120, movement: -12 };
    let requests = 0;
    await page.route(path, (route) => {
      requests += 1;
      const cursor = new URL(route.request().url()).searchParams.get("cursor");
      const meta = { total_members: 240, round: null, round_complete: null, winners: [] };
      return route.fulfill({
        json: {
          data: { rows: members(cursor ? 51 : 1), me: own, neighbours: [member(119), own, member(121)] },
          meta: { ...meta, next_cursor: cursor ? "end" : "next" },
        },
      });
    });
    await page.goto(`/#/leagues/${leagueId}`);
    await shown(page.getByText("You're 120th of 240"));
    expect(await page.getByRole("table").getByRole("row").count()).toBe(1 + 50 + 3);
    await check(page, "league-long");
    await page.getByRole("button", { name: "Show more members" }).click();
    await shown(row(page, "Fan number 100"));
    expect(await page.getByRole("table").getByRole("row").count()).toBe(1 + 100 + 3);
    // A reload keeps the rows that were shown.
    requests = 0;
    await page.evaluate(() => window.dispatchEvent(new Event("online")));
    await expect.poll(() => requests).toBe(2);
    expect(await page.getByRole("table").getByRole("row").count()).toBe(1 + 100 + 3);
    await page.unroute(path);
  });
});

test("new rank is announced on every page", async () => {
  const { page } = pia;
  await page.goto("/#/me");
  // Sent by the service when the rank of a fan changes.
  const news = { league_id: leagueId, rank: 2, previous_rank: 1, points: 60 };
  let isSent = false;
  await page.route("**/api/auth/stream*", (route) => {
    if (isSent) return route.continue();
    isSent = true;
    const body = `retry: 1000\n\nevent: league.rank\ndata: ${JSON.stringify(news)}\n\n`;
    return route.fulfill({ status: 200, contentType: "text/event-stream", body });
  });
  await page.reload();
  const toast = page.getByRole("link", { name: `You are now 2nd in ${office}` });
  await shown(toast);
  await check(page, "rank-news");
  await page.setViewportSize(phone);
  await check(page, "rank-news");
  await page.setViewportSize(desktop);
  await toast.click();
  await shown(page.getByRole("heading", { level: 1, name: office }));
  await page.unroute("**/api/auth/stream*");
});

describe("owner", () => {
  const long = `Die außerordentlich lange Liga der Donaudampfschifffahrtsgesellschaft ${run}`;

  test("renames the league and changes its size", async () => {
    const { page } = olu;
    await page.goto(`/#/leagues/${leagueId}`);
    await page.getByRole("link", { name: "Settings" }).click();
    await shown(page.getByRole("heading", { level: 1, name: "League settings" }));
    await shown(page.getByRole("button", { name: `Remove: ${quinName}` }));
    const size = page.getByLabel("Maximum number of members");
    await size.fill("2");
    await page.getByRole("button", { name: "Save" }).click();
    await shown(page.getByRole("alert"));
    await check(page, "league-settings");
    await page.setViewportSize(desktop);
    await check(page, "league-settings");
    await page.setViewportSize(phone);
    await page.getByLabel("Name", { exact: true }).fill(long);
    await size.fill("20");
    await page.getByRole("button", { name: "Save" }).click();
    await shown(page.getByText("Saved"));
  });

  test("long names fit at every width", async () => {
    const { page } = olu;
    await api(page, "/api/auth/update-user-info", "POST", { name: "Oluwaseun-Maximiliane Donaudampfschiff" });
    for (const path of ["/#/leagues", `/#/leagues/${leagueId}`, `/#/leagues/${leagueId}/settings`]) {
      await page.goto(path);
      await shown(page.getByText(long).filter({ visible: true }).first());
      for (const width of [320, 390, 860, 1280]) {
        await page.setViewportSize({ width, height: 800 });
        const overflow = () => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        await expect.poll(overflow, { message: `${path} at ${width}` }).toBeLessThanOrEqual(0);
        if (width === 320) await check(page, `long${path.replaceAll(/[^a-z]+/g, "-")}`);
      }
    }
    await page.setViewportSize(phone);
  });

  test("replaces the code, and the old link stops working", async () => {
    const { page } = olu;
    await page.goto(`/#/leagues/${leagueId}/settings`);
    await page.getByRole("button", { name: "Replace link and code" }).click();
    await shown(page.getByText("The present ones stop working at once."));
    await check(page, "league-replace-code");
    await page.getByRole("button", { name: "Replace", exact: true }).click();
    await expect.poll(() => page.getByLabel("Invite link").inputValue()).not.toBe(link);
    const old = link;
    link = await page.getByLabel("Invite link").inputValue();
    await pia.page.goto(old);
    await shown(pia.page.getByText("No league has this code."));
  });

  test("removes a member, who cannot join again", async () => {
    const { page } = olu;
    await page.getByRole("button", { name: `Remove: ${quinName}` }).click();
    await shown(page.getByText("They can't join this league again."));
    await check(page, "league-remove");
    await page.getByRole("button", { name: "Remove", exact: true }).click();
    await shown(page.getByText(`${quinName} is no longer a member.`));
    await page.getByRole("button", { name: `Remove: ${quinName}` }).waitFor({ state: "detached" });
    await expect(quin.request("/api/auth/leagues/join", "POST", { code: codeIn(link) })).rejects.toThrow(
      /removed_from_league/,
    );
  });

  test("hands the league over and leaves", async () => {
    const { page } = olu;
    await page.getByRole("button", { name: `Make owner: ${piaName}` }).click();
    await shown(page.getByText("You stay a member"));
    await page.getByRole("button", { name: "Make owner", exact: true }).last().click();
    await shown(page.getByText(`${piaName} is now the owner.`));
    await shown(page.getByRole("heading", { level: 1, name: long }));
    await page.getByRole("link", { name: "Settings" }).waitFor({ state: "detached" });
    await pia.page.goto(`/#/leagues/${leagueId}`);
    await shown(pia.page.getByText("make another member the owner"));
    await pia.page.getByRole("link", { name: "Settings" }).click();
    await pia.page.getByRole("button", { name: "Remove: Oluwaseun" }).click();
    await pia.page.getByRole("button", { name: "Remove", exact: true }).click();
    await shown(pia.page.getByText("is no longer a member."));
    // The page of a removed member says so after its next reload.
    await page.evaluate(() => window.dispatchEvent(new Event("online")));
    await shown(page.getByText("This doesn't exist or is no longer available."));
    await page.goto(link);
    await shown(page.getByText("The owner removed you from this league"));
    await check(page, "join-removed");
  });
});

describe("public leagues", () => {
  const open = `Open Terrace ${run}`;

  test("are found by name and joined", async () => {
    const { page } = pia;
    await page.goto("/#/leagues/new");
    await page.getByLabel("Name", { exact: true }).fill(open);
    await page.getByRole("radio", { name: /Public/ }).check();
    await page.getByRole("button", { name: "Create league" }).click();
    await shown(page.getByRole("heading", { level: 1, name: open }));

    const { page: other } = olu;
    await other.goto("/#/leagues");
    await other.getByLabel("Search public leagues").fill(`no such league ${run}`);
    await shown(other.getByText("No public league has this name."));
    await other.getByLabel("Search public leagues").fill(`terrace ${run}`);
    const found = other.getByRole("region", { name: "Public leagues" }).getByRole("link", { name: open });
    await shown(found);
    await check(other, "public-search");
    await found.click();
    await shown(other.getByRole("button", { name: "Join this league" }));
    expect(await other.getByRole("button", { name: "Invite friends" }).count()).toBe(0);
    await check(other, "public-league");
    await other.getByRole("button", { name: "Join this league" }).click();
    await shown(other.getByText(`You joined ${open}.`));
    await shown(other.getByText(/You're \d+\w\w of 2/));
    await shown(other.getByRole("button", { name: "Invite friends" }));
    // Back to the list, with the same search.
    await other.getByRole("link", { name: "Leagues" }).first().click();
    await shown(found.getByText("Joined"));
  });

  test("no page reported an error", () => {
    expect([...olu.faults, ...pia.faults]).toEqual([]);
  });
});
