import { randomInt } from "node:crypto";
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { check } from "./look.js";
import { type ApiFan, type Device, logIn, logInByApi, runCommand, Stage } from "./stage.js";

// Profiles, follows and privacy, in order: each test builds on the state that the previous ones left. Uma uses a phone, Vic a
// desktop, and Wes the API. All three are in a league. SHOTS_TO=FOLDER saves screenshots.
const run = randomInt(100_000, 999_999);
const phone = { width: 390, height: 844 };
const desktop = { width: 1280, height: 900 };
const cup = `Orchard Cup ${run}`;
const league = `Neighbours ${run}`;
const [pears, plums] = [`Pear Tree ${run}`, `Plum Lane ${run}`];
const newPhone = () => `+1555${randomInt(1_000_000, 9_999_999)}`;
const [umaName, vicName, wesName] = [`uma.${run}`, `vic.${run}`, `wes.${run}`];
const vicsName = `Vic Torres ${run}`;

let stage: Stage;
let uma: Device;
let vic: Device;
let wes: ApiFan;
let leagueId: number;
let cupId: number;
let wesId: number;
let matchId: number;

const shown = (locator: Locator, timeout = 20_000) => locator.waitFor({ state: "visible", timeout });
const slugOf = (name: string) => name.toLowerCase().replaceAll(" ", "_");
const row = (page: Page, name: string) => page.getByRole("table").getByRole("row").filter({ hasText: name });
const heading = (page: Page, name: string) => page.getByRole("heading", { level: 1, name, exact: true });
const top = (page: Page) => page.getByRole("region", { name: "About", exact: true });
const hasFocus = (locator: Locator) => locator.evaluate((element) => element === document.activeElement);

/** Imports the match of the cup: upcoming, or with its result. */
async function importCup(score?: [number, number]): Promise<void> {
  // The start has whole seconds, and predictions of the same second would be late.
  if (score) await new Promise((done) => setTimeout(done, 1_100));
  const start = new Date(Date.now() + (score ? 0 : 86_400_000)).toISOString().replace(/\.\d+Z$/, "Z");
  const document = {
    sport: { slug: "football", name: "Football" },
    tournament: { slug: `orchard_${run}`, name: cup },
    teams: [pears, plums].map((name) => ({ slug: slugOf(name), name, country: "Anywhere", founded: 1900 })),
    matches: [
      {
        key: "final",
        home: slugOf(pears),
        away: slugOf(plums),
        venue: "Orchard Ground",
        round: 1,
        start_time: start,
        status: score ? "finished" : "scheduled",
        home_score: score?.[0] ?? null,
        away_score: score?.[1] ?? null,
      },
    ],
  };
  await runCommand(["fixtures", "import", "-"], JSON.stringify(document));
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

/** Checks the page at both sizes, in light and dark. */
async function checkBoth(page: Page, where: string): Promise<void> {
  const before = page.viewportSize() ?? phone;
  for (const size of [phone, desktop]) {
    await page.setViewportSize(size);
    await check(page, where);
  }
  await page.setViewportSize(before);
}

beforeAll(async () => {
  stage = await Stage.open();
  await importCup();
  uma = await stage.device({ viewport: phone, reducedMotion: "reduce" });
  vic = await stage.device({ viewport: desktop, reducedMotion: "reduce" });
  await logIn(uma.page, newPhone(), umaName);
  await logIn(vic.page, newPhone(), vicName);
  wes = await logInByApi(newPhone(), wesName);
  wesId = (await wes.request<{ data: { id: number } }>("/api/auth/me")).data.id;
  const { data: tournaments } = await wes.request<{ data: { id: number; name: string }[] }>(
    "/api/auth/tournaments?per_page=100",
  );
  cupId = tournaments.find(({ name }) => name === cup)?.id ?? 0;
  const body = { name: league, tournament_ids: [cupId], max_members: 10 };
  const { data } = await wes.request<{ data: { id: number; code: string } }>("/api/auth/leagues", "POST", body);
  leagueId = data.id;
  for (const { page } of [uma, vic]) await api(page, "/api/auth/leagues/join", "POST", { code: data.code });
  const { data: matches } = await wes.request<{ data: { id: number }[] }>(`/api/auth/events?tournament_id=${cupId}`);
  matchId = matches[0]?.id ?? 0;
  const prediction = { event_id: matchId, prediction: "home", confidence: 50 };
  const exact = { ...prediction, score_prediction: { home: 2, away: 1 } };
  await api(uma.page, "/api/auth/predictions", "POST", prediction);
  await api(vic.page, "/api/auth/predictions", "POST", exact);
  await wes.request("/api/auth/predictions", "POST", exact);
  await importCup([2, 1]);
}, 180_000);
afterAll(() => stage?.close());

describe("own profile", () => {
  test("name and teams are edited", async () => {
    const { page } = vic;
    await page.goto("/#/me");
    await page.getByRole("link", { name: "Edit profile" }).click();
    await shown(heading(page, "Edit profile"));
    const name = page.getByRole("textbox", { name: "Name", exact: true });
    expect(await page.getByRole("button", { name: "Save name" }).isDisabled()).toBe(true);
    await name.fill(`  ${vicsName} `);
    await page.getByRole("button", { name: "Save name" }).click();
    await shown(page.getByRole("form", { name: "Name" }).getByText("Saved", { exact: true }));
    expect(await name.inputValue()).toBe(vicsName);
    await shown(page.getByText("Your username can't be changed."));
    const teams = page.getByRole("region", { name: "Favourite teams" });
    await teams.getByRole("combobox", { name: "Favourite team" }).selectOption({ label: pears });
    await shown(teams.getByText("Saved", { exact: true }));
    await teams.getByRole("combobox", { name: "Other teams" }).selectOption({ label: plums });
    await shown(teams.getByRole("list", { name: "Other teams" }).getByText(plums));
    await checkBoth(page, "profile-edit");
    await page.getByRole("link", { name: "your profile" }).click();
    await shown(heading(page, vicsName));
    await shown(page.getByRole("region", { name: "Favourite teams" }).getByText(pears));
    await shown(page.getByRole("region", { name: "Leagues" }).getByRole("link", { name: league }));
    await shown(page.getByRole("region", { name: "Results" }).getByRole("link", { name: cup }), 60_000);
    await checkBoth(page, "profile-own");
  });

  test("generated username is replaced once, and an error keeps the text", async () => {
    const { page, context, faults } = await stage.device({ viewport: phone, reducedMotion: "reduce" });
    await logIn(page, newPhone());
    await page.goto("/#/me/profile");
    const field = page.getByRole("textbox", { name: "New username" });
    await field.fill(vicName);
    await shown(page.getByRole("list", { name: "Available usernames" }));
    await page.getByRole("button", { name: "Change username" }).click();
    await page.getByRole("button", { name: "Change username" }).click();
    // The hint of the field says so too, before the service has answered.
    await shown(page.getByRole("form", { name: "New username" }).locator(".fault").getByText(/taken/i));
    expect(await field.inputValue()).toBe(vicName);
    await checkBoth(page, "username-taken");
    await field.fill(`xia.${run}`);
    await shown(page.getByText("The username is available."));
    await page.getByRole("button", { name: "Change username" }).click();
    await shown(page.getByText("You can do this only once."));
    await page.getByRole("button", { name: "Change username" }).click();
    await shown(page.getByText("Your username can't be changed."));
    await page.goto("/#/me");
    // The heading also has the points.
    await shown(page.getByRole("heading", { level: 1, name: `xia.${run}` }));
    expect(faults).toEqual([]);
    await context.close();
  });

  test("failed save is explained, and the name stays", async () => {
    const { page } = uma;
    await page.goto("/#/me/profile");
    await page.route("**/api/auth/update-user-info", (route) => route.abort());
    await page.getByRole("textbox", { name: "Name", exact: true }).fill("Uma");
    await page.getByRole("button", { name: "Save name" }).click();
    await shown(page.getByText("We can't reach the server."), 40_000);
    expect(await page.getByRole("textbox", { name: "Name", exact: true }).inputValue()).toBe("Uma");
    await page.unroute("**/api/auth/update-user-info");
  });
});

describe("profile of another fan", () => {
  test("every name in a league leads to a profile", async () => {
    const { page } = uma;
    await page.goto(`/#/leagues/${leagueId}`);
    const link = row(page, vicsName).getByRole("link", { name: vicsName });
    await shown(link, 60_000);
    await checkBoth(page, "people-league");
    await link.focus();
    await page.keyboard.press("Enter");
    await shown(heading(page, vicsName));
    expect(await page.title()).toBe(`${vicsName} · Matchday`);
    await shown(top(page).getByText(vicName, { exact: true }));
    await shown(page.getByRole("region", { name: "Favourite teams" }).getByText(plums));
    await shown(page.getByRole("region", { name: "Leagues you share" }).getByRole("link", { name: league }));
    const results = page.getByRole("region", { name: "Results" });
    await shown(results.getByText("1 prediction", { exact: true }));
    await shown(results.getByText("100%"));
    expect(await page.getByRole("region", { name: "Confidence" }).count(), "private by default").toBe(0);
    await checkBoth(page, "profile");
    await page.getByRole("link", { name: "Back" }).click();
    await shown(page.getByRole("heading", { level: 1, name: league }));
  });

  test("predictions of a closed match lead to profiles", async () => {
    const { page } = uma;
    await page.goto(`/#/match/${matchId}`);
    const picks = page.getByRole("region", { name: "Community picks" });
    await picks.getByRole("button", { name: "Show who predicted what" }).click();
    const item = picks.getByRole("listitem").filter({ hasText: vicsName });
    await shown(item.getByText(`${pears} 2–1, 50%`));
    await shown(item.getByText(/[+]\d+ points/));
    await checkBoth(page, "predictions");
    await item.getByRole("link", { name: vicsName }).click();
    await shown(heading(page, vicsName));
  });

  test("profile without name, teams and results, and one that does not exist", async () => {
    const { page, context } = await stage.device({ viewport: phone, reducedMotion: "reduce" });
    await logIn(page, newPhone(), `zoe.${run}`);
    await page.goto(`/#/users/ZOE.${run}`);
    await shown(heading(page, `zoe.${run}`));
    await shown(page.getByText("Your results appear here"));
    await shown(page.getByRole("link", { name: "Choose your teams" }));
    await checkBoth(page, "profile-empty");
    await page.goto("/#/users/no.such.fan");
    await shown(page.getByText("This profile isn't available."));
    await checkBoth(page, "profile-unavailable");
    await context.close();
  });

  test("failed request can be repeated", async () => {
    const { page } = uma;
    const path = `**/api/auth/users/${wesId}`;
    const broken = { code: "internal_error", message: "Something broke.", request_id: "r1" };
    await page.route(path, (route) => route.fulfill({ status: 500, json: broken }));
    await page.goto(`/#/users/${wesId}`);
    await shown(page.getByText("Something broke. (Reference: r1)"));
    await checkBoth(page, "profile-failed");
    await page.unroute(path);
    await page.getByRole("button", { name: "Try again" }).click();
    await shown(heading(page, wesName));
  });
});

describe("follows", () => {
  test("fan follows, and the other fan follows back", async () => {
    const { page } = uma;
    await page.goto("/#/me/following");
    await shown(page.getByText("You don't follow anyone yet."));
    await checkBoth(page, "following-empty");
    await page.goto(`/#/users/${vicName}`);
    const follow = page.getByRole("button", { name: `Follow: ${vicsName}` });
    await shown(top(page).getByText("0 followers"));
    await follow.focus();
    await page.keyboard.press("Enter");
    const unfollow = page.getByRole("button", { name: `Unfollow: ${vicsName}` });
    await shown(unfollow);
    expect(await hasFocus(unfollow)).toBe(true);
    await shown(top(page).getByText("1 follower", { exact: true }));
    await checkBoth(page, "profile-followed");

    await vic.page.goto("/#/me");
    await vic.page.getByRole("link", { name: "Followers" }).click();
    await shown(vic.page.getByRole("listitem").filter({ hasText: umaName }));
    await checkBoth(vic.page, "followers");
    await vic.page.getByRole("button", { name: `Follow back: ${umaName}` }).click();
    await shown(vic.page.getByRole("button", { name: `Unfollow: ${umaName}` }));
    await vic.page.getByRole("link", { name: "Following" }).click();
    await shown(vic.page.getByRole("listitem").filter({ hasText: umaName }).getByText("Follows you"));

    await page.reload();
    await shown(top(page).getByText("Follows you"));
  });

  test("unfollowed person stays in the list and can be followed again", async () => {
    const { page } = uma;
    await page.goto("/#/me/following");
    const item = page.getByRole("listitem").filter({ hasText: vicsName });
    await item.getByRole("button", { name: /^Unfollow/ }).click();
    await item.getByRole("button", { name: /^Follow/ }).click();
    await shown(item.getByRole("button", { name: /^Unfollow/ }));
    await page.reload();
    await shown(item);
    await item.getByRole("link", { name: vicsName }).click();
    await shown(heading(page, vicsName));
  });

  test("refusal is explained", async () => {
    const { page } = uma;
    const path = `**/api/auth/follows/${wesId}`;
    await page.route(path, (route) =>
      route.fulfill({ status: 409, json: { code: "too_many_follows", message: "Too many." } }),
    );
    await page.goto(`/#/users/${wesId}`);
    await page.getByRole("button", { name: `Follow: ${wesName}` }).click();
    await shown(page.getByText("You follow as many people as possible."));
    await checkBoth(page, "follow-refused");
    await page.unroute(path);
  });

  test("long list is loaded page by page", async () => {
    const { page } = uma;
    const item = (number: number) => ({
      user: {
        id: 900_000 + number,
        username: `fan_${number}`,
        name: number % 3 ? `Fan ${number}` : null,
        avatar_url: null,
      },
      followed_at: "2026-11-01T12:00:00Z",
      is_following: number % 2 === 0,
      follows_me: true,
    });
    const all = Array.from({ length: 60 }, (_, index) => item(index));
    await page.route(/\/api\/auth\/followers\?/, (route) => {
      const start = Number(new URL(route.request().url()).searchParams.get("cursor") ?? 0);
      const next = start + 50 < all.length ? String(start + 50) : null;
      return route.fulfill({ json: { data: all.slice(start, start + 50), meta: { next_cursor: next, total: 60 } } });
    });
    await page.goto("/#/me/followers");
    await shown(page.getByText("60 followers"));
    const items = page.locator(".people").getByRole("listitem");
    expect(await items.count()).toBe(50);
    await checkBoth(page, "followers-long");
    await page.getByRole("button", { name: "Show more" }).click();
    await expect.poll(() => items.count()).toBe(60);
    await page.unroute(/\/api\/auth\/followers\?/);
  });
});

describe("leaderboard", () => {
  test("shows the people whom the fan follows", async () => {
    const { page } = uma;
    await page.goto(`/#/table/tournament/${cupId}`);
    await shown(row(page, wesName), 60_000);
    await page.getByRole("radio", { name: "People you follow" }).check();
    await row(page, wesName).waitFor({ state: "detached" });
    await shown(row(page, vicsName));
    await shown(page.getByText("You're 2nd of 2"));
    await checkBoth(page, "leaderboard-following");
    // The choice stays on other leaderboards and after a visit of a profile.
    await row(page, vicsName).getByRole("link", { name: vicsName }).click();
    await page.getByRole("button", { name: `Unfollow: ${vicsName}` }).click();
    await shown(page.getByRole("button", { name: /^Follow/ }));
    await page.getByRole("link", { name: "Back" }).click();
    await shown(page.getByText("You're 1st of 1"));
    await shown(page.getByText("People you follow appear here"));
    await checkBoth(page, "leaderboard-following-alone");
    await page.getByRole("radio", { name: "Everyone" }).check();
    await shown(row(page, wesName));
  });
});

describe("privacy", () => {
  const choose = async (part: string, audience: string) => {
    const { page } = vic;
    await page.getByRole("group", { name: part }).getByRole("radio", { name: audience }).check();
    await shown(page.getByRole("region", { name: "Who can see what" }).getByText("Saved", { exact: true }));
  };

  test("hidden parts are not shown", async () => {
    const { page } = vic;
    await page.goto("/#/me");
    await page.getByRole("link", { name: "Privacy" }).click();
    await shown(page.getByRole("group", { name: "Confidence" }));
    await checkBoth(page, "privacy");
    await choose("Confidence", "Everyone");
    await uma.page.goto(`/#/users/${vicName}`);
    await uma.page.reload();
    await shown(uma.page.getByRole("region", { name: "Confidence" }).getByText("50%"));
    await checkBoth(uma.page, "profile-confidence");
    await choose("Name", "No one");
    await choose("Favourite teams", "No one");
    await choose("Results", "No one");
    await uma.page.reload();
    await shown(heading(uma.page, vicName));
    await shown(uma.page.getByText("keeps their teams and results private."));
    await checkBoth(uma.page, "profile-private");
    // Vic follows Uma.
    await choose("Results", "People I follow");
    await uma.page.reload();
    await shown(uma.page.getByRole("region", { name: "Results" }));
    await page.reload();
    await shown(page.getByRole("group", { name: "Name" }).getByRole("radio", { name: "No one", checked: true }));
    await choose("Name", "Everyone");
  });

  test("failed change is undone and explained", async () => {
    const { page } = vic;
    await page.route("**/api/auth/me/privacy", (route) =>
      route.request().method() === "PUT"
        ? route.fulfill({ status: 500, json: { code: "internal_error", message: "Something broke." } })
        : route.continue(),
    );
    const teams = page.getByRole("group", { name: "Favourite teams" });
    await teams.getByRole("radio", { name: "Everyone" }).click();
    await shown(page.getByText("Your settings haven't changed."));
    await shown(teams.getByRole("radio", { name: "No one", checked: true }));
    await checkBoth(page, "privacy-failed");
    await page.unroute("**/api/auth/me/privacy");
  });
});

describe("block", () => {
  test("is confirmed, hides the profile and can be lifted", async () => {
    const { page } = uma;
    await page.goto(`/#/users/${wesId}`);
    await page.getByRole("button", { name: "Block this person" }).click();
    await shown(page.getByText(`Block ${wesName}?`));
    await checkBoth(page, "block");
    await page.getByRole("button", { name: "Cancel" }).click();
    expect(await hasFocus(page.getByRole("button", { name: "Block this person" }))).toBe(true);
    await page.getByRole("button", { name: "Block this person" }).click();
    await page.getByRole("button", { name: "Block", exact: true }).click();
    await shown(page.getByText(`You blocked ${wesName}.`));
    await checkBoth(page, "blocked");
    await page.reload();
    await shown(page.getByText("This profile isn't available."));
    await page.getByRole("link", { name: "privacy settings" }).click();
    const blocked = page.getByRole("region", { name: "Blocked people" });
    await shown(blocked.getByText(wesName));
    await checkBoth(page, "privacy-blocked");
    await blocked.getByRole("button", { name: `Unblock: ${wesName}` }).click();
    await shown(blocked.getByText("You haven't blocked anyone."));
    await page.goto(`/#/users/${wesId}`);
    await shown(heading(page, wesName));
  });
});

test("no page reported an error", () => {
  expect([...uma.faults, ...vic.faults]).toEqual([]);
});
