import { randomInt } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Locator, Page, Request, Route } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { violationsOf } from "./axe.js";
import { type ApiFan, codeOf, type Device, logIn, logInByApi, runCommand, Stage } from "./stage.js";

// Situations that the demo data does not contain: long lists, long and right-to-left names, high scores, a full chat,
// failures and two tabs. SHOTS_TO=FOLDER saves screenshots of them.
const widths = [320, 390, 1280] as const;
const run = randomInt(100_000, 999_999);
const tournament = `Mitteldeutsche Betriebssportmeisterschaft ${run}`;
const arabic = "نادي الاتحاد الرياضي السعودي بجدة";
const hebrew = `הפועל באר שבע ${run}`;
const unbroken = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch";
const long = "Wolverhampton Wanderers and Friends Athletic Association";
const upcomingCount = 65;
const resultCount = 35;

let stage: Stage;
let fan: Device;
let page: Page;
let other: ApiFan;
let room: string;
let liveMatch: number;
const [fansName, fansPhone] = [`kim.${run}`, `+1555${randomInt(1_000_000, 9_999_999)}`];

const shown = (locator: Locator, timeout = 20_000) => locator.waitFor({ state: "visible", timeout });
const gone = (locator: Locator, timeout = 20_000) => locator.waitFor({ state: "hidden", timeout });
const list = (name: string) => page.getByRole("region", { name, exact: true });
const log = (on = page) => on.getByRole("log", { name: "Messages" });
const input = (on = page) => on.getByLabel("Message", { exact: true });
const atWidth = (width: number) => page.setViewportSize({ width, height: width < 860 ? 740 : 800 });
const coins = async (on: Page) => Number((await on.locator(".bar .coins").textContent())?.replace(/\D/g, ""));
const failWith =
  (status: number, body: object, headers = {}) =>
  (route: Route) =>
    route.fulfill({ status, headers, contentType: "application/json", body: JSON.stringify(body) });

async function shot(name: string): Promise<void> {
  const folder = process.env.SHOTS_TO;
  if (!folder) return;
  await mkdir(folder, { recursive: true });
  await page.evaluate(() => document.fonts.ready.then(() => undefined));
  await page.screenshot({ path: join(folder, `${name}-${page.viewportSize()?.width}.png`) });
}

/** Elements that overflow their box or the window. */
function overflowing(): Promise<string[]> {
  return page.evaluate(() => {
    const isSeen = (element: Element) => element.checkVisibility() && element.getClientRects().length > 0;
    const isScrolled = (element: Element) => element.closest(".date-strip, .unseen, select") !== null;
    const found: string[] = [];
    if (document.documentElement.scrollWidth > innerWidth) found.push(`page: ${document.documentElement.scrollWidth}`);
    for (const element of document.querySelectorAll<HTMLElement>("#root *")) {
      if (!isSeen(element) || isScrolled(element) || element.closest("svg")) continue;
      const { left, right } = element.getBoundingClientRect();
      const style = getComputedStyle(element);
      // The venue in a row ends in an ellipsis; the match page shows the full name.
      const isCut = style.overflowX === "hidden" && style.webkitLineClamp === "none";
      const isClipped = isCut && element.scrollWidth > element.clientWidth + 1;
      if (left < -1 || right > innerWidth + 1 || isClipped) {
        found.push(`${element.tagName} .${element.className}: ${left}…${right} ${element.textContent?.slice(0, 40)}`);
      }
    }
    // A score must not overlap the names next to it.
    for (const score of document.querySelectorAll(".board-middle")) {
      const { left, right } = score.getBoundingClientRect();
      for (const part of score.querySelectorAll(".digit, strong")) {
        const inner = part.getBoundingClientRect();
        if (isSeen(part) && (inner.left < left - 1 || inner.right > right + 1))
          found.push(`score: ${part.textContent}`);
      }
    }
    return found.slice(0, 5);
  });
}

/** Polls, because the browser needs a moment to apply a new width. */
const fits = (where: string) => expect.poll(overflowing, { message: where }).toEqual([]);

/** Whether an element is inside the window and nothing covers it. */
function isOnTop(locator: Locator): Promise<boolean> {
  return locator.evaluate((element) => {
    const { left, right, top, bottom } = element.getBoundingClientRect();
    if (top < 0 || bottom > innerHeight || left < 0 || right > innerWidth) return false;
    const hit = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    return hit !== null && (element.contains(hit) || hit.contains(element));
  });
}

async function importMatches(): Promise<void> {
  const teams = [long, unbroken, arabic, hebrew].map((name, number) => ({
    slug: `web_${run}_${number}`,
    name,
    country: "Anywhere",
    founded: 1900,
  }));
  const at = (days: number, minutes = 0) => new Date(Date.now() + days * 86_400_000 + minutes * 60_000).toISOString();
  // Just after midnight, a match that started 50 minutes ago would be one of yesterday.
  const liveSince = new Date(Math.max(Date.now() - 50 * 60_000, new Date().setHours(0, 0, 0, 0))).toISOString();
  const entry = (key: string, pair: number, start_time: string, status: string, scores?: [number, number]) => ({
    key,
    home: teams[pair % 4]?.slug,
    away: teams[(pair + 1 + (pair % 3)) % 4]?.slug,
    start_time: start_time.replace(/\.\d+Z$/, "Z"),
    venue: "Estadio Monumental Presidente Doctor Juan Antonio de la Rivera",
    status,
    home_score: scores?.[0] ?? null,
    away_score: scores?.[1] ?? null,
  });
  const numbers = (count: number) => Array.from({ length: count }, (_, number) => number);
  const matches = [
    { ...entry("live", 0, liveSince, "live", [101, 99]), home: teams[1]?.slug, away: teams[2]?.slug },
    ...numbers(upcomingCount).map((number) => entry(`next-${number}`, number, at(40 + number / 4), "scheduled")),
    ...numbers(resultCount).map((number) =>
      entry(`past-${number}`, number, at(-40 - number / 4), "finished", [112, 104]),
    ),
    entry("postponed", 1, at(-90), "postponed"),
    entry("cancelled", 2, at(-91), "cancelled"),
  ];
  const sport = { slug: "football", name: "Football" };
  const document = { sport, tournament: { slug: `web_${run}`, name: tournament }, teams };
  // Only the room of the live match must exist before the tests start.
  await runCommand(["fixtures", "import", "-"], JSON.stringify({ ...document, matches: matches.slice(0, 1) }));
  await runCommand(["fixtures", "import", "--no-wait", "-"], JSON.stringify({ ...document, matches }));
}

beforeAll(async () => {
  stage = await Stage.open();
  await importMatches();
  fan = await stage.device({ reducedMotion: "reduce" });
  page = fan.page;
  other = await logInByApi(`+1555${randomInt(1_000_000, 9_999_999)}`, `lou.${run}`);
}, 180_000);
afterAll(() => stage?.close());

test("extracts the code from pasted text", async () => {
  await page.goto("/");
  await page.getByLabel("Phone number").fill(fansPhone);
  await page.getByRole("button", { name: "Send code" }).click();
  const field = page.getByLabel(/Code sent to/);
  await shown(field);
  const code = await codeOf(fansPhone);
  const spaced = `${code.slice(0, 3)} ${code.slice(3)}`;
  for (const text of [
    spaced,
    `Your code is ${spaced}. It is valid for 5 minutes.`,
    `${code.slice(0, 3)}-${code.slice(3)}`,
  ]) {
    await field.fill("");
    await field.focus();
    await page.keyboard.insertText(text);
    expect(await field.inputValue()).toBe(code);
  }
  await page.getByText("Choose a username").click();
  await page.getByRole("textbox", { name: "Username" }).fill(fansName);
  await shown(page.getByText("The username is available."));
  await page.getByRole("button", { name: "Log in", exact: true }).click();
  await shown(page.getByRole("heading", { name: "Matches", level: 1 }));
  await page.evaluate(
    async ([path, name]) => {
      const token = localStorage.getItem("matchday.token");
      const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
      await fetch(path as string, { method: "POST", headers, body: JSON.stringify({ name }) });
    },
    ["/api/auth/update-user-info", `${arabic} ${unbroken.slice(0, 30)}`],
  );
});

describe("match list", () => {
  test("reaches every match by tournament, team and day", async () => {
    await page.getByRole("combobox", { name: "Tournament" }).selectOption({ label: tournament });
    const upcoming = list("Upcoming").getByRole("listitem");
    await shown(upcoming.first());
    await shown(page.getByRole("link", { name: /101 to 99/ }));
    // Scrolling to the end loads the next page.
    const withoutResult = 2;
    await expect
      .poll(
        async () => {
          await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
          return upcoming.count();
        },
        { timeout: 30_000 },
      )
      .toBe(upcomingCount + withoutResult);
    await shown(list("Upcoming").getByRole("heading", { name: "Postponed or awaiting a result" }));
    // Every day has a heading for each of its tournaments.
    expect(await list("Upcoming").getByRole("heading", { level: 4, name: tournament }).count()).toBeGreaterThan(10);
    await page.getByRole("radio", { name: "Results" }).check();
    const results = list("Results").getByRole("listitem");
    await expect
      .poll(
        async () => {
          await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
          return results.count();
        },
        { timeout: 30_000 },
      )
      .toBe(resultCount);

    await page.getByRole("combobox", { name: "Team", exact: true }).selectOption({ label: hebrew });
    await expect.poll(() => results.filter({ hasNotText: hebrew }).count()).toBe(0);
    await shown(results.first());
    expect(await results.filter({ hasText: hebrew }).count()).toBeLessThan(resultCount);
    await page.getByRole("combobox", { name: "Team", exact: true }).selectOption({ label: "All teams" });

    const day = new Date(Date.now() - 40 * 86_400_000);
    const two = (number: number) => String(number).padStart(2, "0");
    const text = `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())}`;
    await page.getByLabel("Another day").fill(text);
    const ofDay = list("Matches of the day").getByRole("listitem");
    await shown(ofDay.first());
    expect(await list("Matches of the day").getByRole("heading", { level: 3 }).count()).toBe(1);
    expect(await ofDay.count()).toBeLessThanOrEqual(4);
    await page.getByRole("button", { name: /^Today/ }).click();
    await shown(list("Matches of the day").getByRole("link", { name: /101/ }));
    await page.getByRole("button", { name: "All days" }).click();
    await page.getByRole("radio", { name: "Upcoming" }).check();
    await shown(upcoming.first());
  });

  test("next page is loaded although the browser reports late that its end was out of view", async () => {
    const slow = await fan.context.newPage();
    // A busy browser reports several changes in one call. This observer always collects them for a while.
    await slow.addInitScript(() => {
      globalThis.IntersectionObserver = class extends IntersectionObserver {
        constructor(report: IntersectionObserverCallback, options?: IntersectionObserverInit) {
          let waiting: IntersectionObserverEntry[] = [];
          super((entries, observer) => {
            if (waiting.length === 0) {
              setTimeout(() => {
                report(waiting, observer);
                waiting = [];
              }, 500);
            }
            waiting = [...waiting, ...entries];
          }, options);
        }
      };
    });
    await slow.goto("/");
    await slow.getByRole("combobox", { name: "Tournament" }).selectOption({ label: tournament });
    const upcoming = slow.getByRole("region", { name: "Upcoming", exact: true }).getByRole("listitem");
    await shown(upcoming.first());
    await expect
      .poll(
        async () => {
          await slow.evaluate(() => scrollTo(0, document.body.scrollHeight));
          return upcoming.count();
        },
        { timeout: 10_000 },
      )
      .toBeGreaterThan(60);
    await slow.close();
  });

  test("failed page is retried, and its error belongs to its filter", async () => {
    const ofTournament = /\/api\/auth\/events\?tournament_id=\d+&status=scheduled&page=2/;
    let failures = 0;
    await page.route(ofTournament, (route) => {
      failures += 1;
      return failures > 1
        ? route.continue()
        : route.fulfill({ status: 500, json: { message: "Broken.", code: "internal_error" } });
    });
    const tournaments = page.getByRole("combobox", { name: "Tournament" });
    await page.goto("/#/me");
    await page.reload();
    await page.goto("/#/");
    await tournaments.selectOption({ label: tournament });
    const upcoming = list("Upcoming").getByRole("listitem");
    await expect
      .poll(
        async () => {
          await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
          return failures;
        },
        { timeout: 10_000 },
      )
      .toBe(1);
    const notice = list("Upcoming").getByRole("alert");
    await shown(notice);
    await tournaments.selectOption({ label: "All tournaments" });
    await notice.waitFor({ state: "detached" });
    await tournaments.selectOption({ label: tournament });
    await expect.poll(() => upcoming.count()).toBeGreaterThan(30);
    expect(failures).toBeGreaterThan(1);
    await page.unroute(ofTournament);
  });

  test("names and high scores fit at every width", async () => {
    for (const width of widths) {
      await atWidth(width);
      await page.goto("/#/");
      await shown(page.getByRole("link", { name: /101 to 99/ }));
      await shown(list("Upcoming").getByRole("listitem").first());
      await shot("matches");
      await fits(`upcoming at ${width}`);
      if (width < 860) await page.getByRole("radio", { name: "Results" }).check();
      await shown(list("Results").getByRole("listitem").first());
      await list("Results").scrollIntoViewIfNeeded();
      await shot("results");
      await fits(`results at ${width}`);
      if (width < 860) await page.getByRole("radio", { name: "Upcoming" }).check();
    }
    expect(await violationsOf(page)).toEqual([]);
    const name = page.getByText(arabic).filter({ visible: true }).first();
    expect(await name.getAttribute("dir")).toBe("auto");
    expect(await name.evaluate((element) => getComputedStyle(element).direction)).toBe("rtl");
  });

  test("going back restores the scroll position", async () => {
    for (const width of [390, 1280]) {
      await atWidth(width);
      await page.goto("/#/");
      const rows = list("Upcoming").getByRole("listitem");
      await shown(rows.first());
      await rows.nth(50).scrollIntoViewIfNeeded();
      const before = await page.evaluate(() => scrollY);
      expect(before).toBeGreaterThan(3000);
      await rows.nth(50).getByRole("link").click();
      await shown(page.getByRole("form", { name: "Your prediction" }));
      expect(await page.evaluate(() => scrollY)).toBe(0);
      await page.goBack();
      await expect.poll(() => page.evaluate(() => scrollY)).toBe(before);
      await rows.nth(50).getByRole("link").click();
      await page.getByRole("link", { name: "All matches" }).click();
      await expect.poll(() => page.evaluate(() => scrollY)).toBe(before);
    }
  });

  test("shows that the fan's predictions could not be loaded", async () => {
    await atWidth(390);
    await page.route("**/api/auth/predictions?*", failWith(500, { code: "internal_error", message: "Sorry." }));
    await page.goto("/#/me");
    await page.reload();
    await page.goto("/#/");
    const alert = page.getByRole("alert").filter({ hasText: "Your predictions couldn't be loaded." });
    await shown(alert);
    await shown(list("Upcoming").getByRole("listitem").first());
    expect(await page.locator(".tag.call").count()).toBe(0);
    expect(await page.getByText("No prediction", { exact: true }).count()).toBe(0);
    expect(await violationsOf(page)).toEqual([]);
    await shot("predictions-failed");
    await page.unroute("**/api/auth/predictions?*");
    await alert.getByRole("button", { name: "Try again" }).click();
    await shown(page.locator(".tag.call").first());
    await shown(page.getByText("No prediction", { exact: true }).first());
    await gone(alert);
  });
});

describe("prediction", () => {
  test("unsaved changes are marked and can be saved at every width", async () => {
    for (const width of widths) {
      await atWidth(width);
      await page.goto("/#/");
      await list("Upcoming").getByRole("listitem").nth(widths.indexOf(width)).getByRole("link").click();
      const form = page.getByRole("form", { name: "Your prediction" });
      const save = form.getByRole("button", { name: /^Save/ });
      await shown(form);
      expect(await save.isDisabled()).toBe(true);
      await form.getByRole("radio").first().check();
      await shown(form.getByText("Not saved", { exact: true }));
      await expect.poll(() => isOnTop(save), { message: `save button at ${width}` }).toBe(true);
      await form.getByRole("button", { name: "Add a score" }).click();
      await form
        .getByRole("button", { name: /Add a goal/ })
        .first()
        .click();
      await shown(form.locator(".stake"));
      await shot("prediction");
      await fits(`prediction at ${width}`);
      // Visiting another page keeps the draft.
      await page.getByRole("navigation").getByRole("link", { name: "You" }).click();
      await page.goBack();
      await shown(form.getByText("Not saved", { exact: true }));
      await form.getByRole("button", { name: "Save prediction" }).click();
      await shown(form.getByText(/^Saved: .* 2–0, 50%\.$/));
      expect(await form.getByRole("button", { name: "Saved", exact: true }).isDisabled()).toBe(true);
      await form.getByLabel("How sure are you?").fill("80");
      await shown(form.getByText(/^Saved so far: .*50%/));
      await shown(form.getByText("Not saved", { exact: true }));
      await form.getByRole("button", { name: "Undo" }).click();
      expect(await form.getByLabel("How sure are you?").inputValue()).toBe("50");
      // Community picks add up to 100%.
      await expect
        .poll(async () => {
          const shares = await page.locator(".tally-parts strong").allTextContents();
          return shares.map((share) => Number(share.replace("%", ""))).reduce((sum, share) => sum + share, 0);
        })
        .toBe(100);
    }
  });

  test("shows why predictions for a match are closed", async () => {
    const form = page.getByRole("form", { name: "Your prediction" });
    for (const [code, message] of [
      ["event_postponed", "This match is postponed. You can predict it once it has a new date."],
      ["event_cancelled", "This match was cancelled."],
    ] as const) {
      await page.route("**/api/auth/predictions", failWith(400, { code, message }));
      await form.getByLabel("How sure are you?").fill(code === "event_postponed" ? "85" : "90");
      await form.getByRole("button", { name: "Save changes" }).click();
      await shown(form.getByRole("alert").filter({ hasText: message }));
      await page.unroute("**/api/auth/predictions");
    }
    await form.getByRole("button", { name: "Undo" }).click();
  });
});

describe("chat", () => {
  const sending = "**/api/auth/chat-rooms/*/messages";
  const leave = () => page.getByRole("button", { name: "Leave" });
  const message = (text: string) => log().locator(".message").filter({ hasText: text });
  const say = async (text: string) => {
    await input().fill(text);
    await page.keyboard.press("Enter");
  };

  const isView = (request: Request) => /\/api\/auth\/stream\?.*chat=true/.test(request.url());

  test("failed first message stays until it is sent", async () => {
    await atWidth(390);
    await page.goto("/#/");
    await page.getByRole("link", { name: /101 to 99/ }).click();
    await shown(log());
    liveMatch = Number(new URL(page.url()).hash.split("/").at(-1));
    expect(await leave().count(), "reading does not join").toBe(0);
    await shot("spectator-empty");
    const { data } = await other.request<{ data: { room_id: string }[] }>(`/api/auth/chat-rooms?event_id=${liveMatch}`);
    room = data[0]?.room_id ?? "";
    await other.request(`/api/auth/chat-rooms/${encodeURIComponent(room)}/join`, "POST");
    await other.say(room, "Anyone here?");
    await shown(message("Anyone here?"));

    const keys: (string | undefined)[] = [];
    let isRefused = true;
    await page.route(sending, async (route) => {
      if (route.request().postDataJSON().body !== "First of all") return route.fallback();
      keys.push(route.request().headers()["idempotency-key"]);
      if (!isRefused) return route.fallback();
      await failWith(
        503,
        { code: "chat_unavailable", message: "Chat is unavailable." },
        { "Retry-After": "60" },
      )(route);
    });
    await say("First of all");
    await shown(message("First of all").getByText("Not sent."));
    // This message joins, but the first one is not sent yet.
    await say("Second thought");
    await gone(message("Second thought").getByText("Sending…"));
    await expect.poll(() => other.count(room, "Second thought")).toBe(1);
    await shown(message("First of all").getByText("Not sent."));
    await shot("spectator-failed");
    expect(await violationsOf(page)).toEqual([]);
    const homeserver: string[] = [];
    const listener = (request: Request) => {
      if (/\/_matrix\/|\/\.well-known\/matrix/.test(request.url())) homeserver.push(request.url());
    };
    page.on("request", listener);
    await page.goto("/#/me");
    await log().waitFor({ state: "detached" });
    await page.goto(`/#/match/${liveMatch}`);
    // The page knows that the fan has joined, but does not replace the view while a message is not sent.
    await shown(leave());
    await other.say(room, "Welcome");
    await shown(message("Welcome"));
    expect(homeserver).toEqual([]);
    await shown(message("First of all").getByText("Not sent."));
    page.off("request", listener);
    isRefused = false;
    await message("First of all").getByRole("button", { name: "Try again" }).click();
    await gone(message("First of all").getByText(/Not sent|Sending/));
    expect(keys).toHaveLength(2);
    expect(new Set(keys)).toHaveLength(1);
    await page.unroute(sending);
    for (const text of ["First of all", "Second thought"]) {
      expect(await message(text).count()).toBe(1);
      expect(await other.count(room, text)).toBe(1);
    }
    await leave().click();
    await gone(leave());
    await shown(message("First of all"));
  });

  test("messages wait in line while the room is busy", async () => {
    const requests: [text: string, key: string | undefined][] = [];
    await page.route(sending, async (route) => {
      requests.push([route.request().postDataJSON().body, route.request().headers()["idempotency-key"]]);
      if (requests.length > 2) return route.fallback();
      await failWith(503, { code: "room_busy", message: "The room is busy." }, { "Retry-After": "2" })(route);
    });
    await say("Hello, everyone");
    await shown(page.getByText("The chat is busy. You're in line…"));
    await say("Me again");
    await shot("in-line");
    expect(await violationsOf(page)).toEqual([]);
    const closed = page.waitForEvent("requestfailed", isView);
    await input().fill("Still writing");
    await shown(leave());
    await gone(page.getByText("The chat is busy. You're in line…"));
    await page.unroute(sending);
    expect(requests.map(([text]) => text)).toEqual([...Array(3).fill("Hello, everyone"), "Me again"]);
    expect(new Set(requests.map(([, key]) => key))).toHaveLength(2);
    for (const text of ["Hello, everyone", "Me again"]) {
      await shown(message(text));
      expect(await message(text).count()).toBe(1);
      expect(await other.count(room, text)).toBe(1);
    }
    // The spectator is a member now, and the form was not replaced.
    await closed;
    expect(await input().inputValue()).toBe("Still writing");
    expect(await input().evaluate((element) => element === document.activeElement)).toBe(true);
    await input().fill("");
  });

  test("hidden tab closes the stream of a spectator", async () => {
    const viewer = await stage.device();
    await logIn(viewer.page, "+15550100101");
    const open = new Set<Request>();
    viewer.page.on("request", (request) => isView(request) && open.add(request));
    for (const event of ["requestfailed", "requestfinished"] as const) {
      viewer.page.on(event as "requestfailed", (request) => open.delete(request));
    }
    await viewer.page.goto(`/#/match/${liveMatch}`);
    await shown(log(viewer.page).getByText("Hello, everyone"));
    expect(open.size).toBe(1);
    const setHidden = (isHidden: boolean) =>
      viewer.page.evaluate((isHidden) => {
        Object.defineProperty(document, "hidden", { configurable: true, value: isHidden });
        document.dispatchEvent(new Event("visibilitychange"));
      }, isHidden);
    await setHidden(true);
    await expect.poll(() => open.size, { timeout: 40_000 }).toBe(0);
    await other.say(room, "Said to a hidden tab");
    await setHidden(false);
    await shown(log(viewer.page).getByText("Said to a hidden tab"));
    expect(open.size).toBe(1);
    expect(await log(viewer.page).getByText("Hello, everyone").count()).toBe(1);
    await viewer.context.close();
  });

  test("list follows the newest message unless the reader scrolled up", async () => {
    const texts = Array.from({ length: 200 }, (_, number) =>
      number % 20 === 7
        ? `${number}: ${unbroken}${unbroken}`
        : number % 20 === 13
          ? `${arabic} ${number}`
          : `Message ${number}`,
    );
    for (let start = 0; start < 200; start += 20) {
      await Promise.all(texts.slice(start, start + 20).map((text) => other.say(room, text)));
    }
    await other.say(room, "The last of many");
    await shown(log().getByText("The last of many"));
    // Scrolling up loads earlier messages and keeps the visible ones in place.
    const messages = log().locator(".message");
    for (let before = 0; (await messages.count()) < 200; ) {
      before = await messages.count();
      await log().evaluate((element) => element.scrollTo(0, 60));
      await expect.poll(() => messages.count()).toBeGreaterThan(before);
      expect(await log().evaluate(({ scrollTop }) => scrollTop)).toBeGreaterThan(200);
    }
    for (const width of widths) {
      await atWidth(width);
      await page.goto("/#/me");
      // The list must be removed first, or the next page would keep its scroll position.
      await log().waitFor({ state: "detached" });
      await page.goto(`/#/match/${liveMatch}`);
      const last = log().locator(".message").last();
      await shown(last);
      const box = () =>
        log().evaluate(({ scrollTop, scrollHeight, clientHeight }) => ({ scrollTop, scrollHeight, clientHeight }));
      const { scrollHeight, clientHeight } = await box();
      expect(scrollHeight).toBeGreaterThan(clientHeight * 2);
      expect(clientHeight).toBeGreaterThan(150);
      const isPinned = async () => {
        const { scrollTop, scrollHeight, clientHeight } = await box();
        return scrollHeight - scrollTop - clientHeight < 2;
      };
      await expect.poll(isPinned, { message: `pinned at ${width}` }).toBe(true);
      expect(await isOnTop(input()), `input at ${width}`).toBe(true);
      expect(await isOnTop(page.getByRole("button", { name: "Send" })), `send at ${width}`).toBe(true);
      await other.say(room, `Seen at ${width}`);
      await shown(log().getByText(`Seen at ${width}`));
      await expect.poll(isPinned).toBe(true);
      await shot("chat");
      await fits(`chat at ${width}`);
      // A new message does not move a reader who scrolled up.
      await log().evaluate((element) => element.scrollTo(0, element.scrollTop - 150));
      const { scrollTop } = await box();
      await other.say(room, `Missed at ${width}`);
      const button = page.getByRole("button", { name: "1 new message" });
      await shown(button);
      expect((await box()).scrollTop).toBe(scrollTop);
      expect(await isOnTop(input())).toBe(true);
      await shot("chat-new-messages");
      if (width === 320) expect(await violationsOf(page), `chat at ${width}`).toEqual([]);
      await button.click();
      await expect.poll(isPinned).toBe(true);
      await gone(button);
    }
    const rightToLeft = log().getByText(arabic).last();
    expect(await rightToLeft.evaluate((element) => getComputedStyle(element).direction)).toBe("rtl");
  });

  test("failed message is retried once or discarded", async () => {
    await atWidth(390);
    const transactions: string[] = [];
    const sending = "**/send/m.room.message/**";
    let isDown = true;
    await page.route(sending, async (route) => {
      transactions.push(new URL(route.request().url()).pathname.split("/").at(-1) ?? "");
      if (isDown) return route.abort();
      return route.fallback();
    });
    await say("Lost on the way");
    await shown(message("Lost on the way").getByText("Not sent."));
    await shot("chat-failed");
    expect(await input().inputValue()).toBe("");
    expect(await violationsOf(page)).toEqual([]);
    isDown = false;
    await message("Lost on the way").getByRole("button", { name: "Try again" }).click();
    await gone(message("Lost on the way").getByText("Not sent."));
    await expect.poll(() => other.count(room, "Lost on the way")).toBe(1);
    expect(transactions).toHaveLength(2);
    expect(new Set(transactions)).toHaveLength(1);

    // The homeserver accepts the message, but its response is lost.
    await page.unroute(sending);
    await page.route(
      sending,
      async (route) => {
        await route.fetch();
        await route.abort();
      },
      { times: 1 },
    );
    await say("Answer lost");
    await expect.poll(() => other.count(room, "Answer lost")).toBe(1);
    const again = message("Answer lost").getByRole("button", { name: "Try again" });
    await gone(message("Answer lost").getByText("Sending…"));
    // The sync may deliver the message before the request fails.
    if (await again.isVisible()) await again.click().catch(() => {});
    await gone(message("Answer lost").getByText("Not sent."));
    expect(await message("Answer lost").count()).toBe(1);
    expect(await other.count(room, "Answer lost")).toBe(1);

    await page.route(sending, (route) => route.abort());
    await say("Better not");
    await message("Better not").getByRole("button", { name: "Discard" }).click();
    await gone(message("Better not"));
    expect(await other.count(room, "Better not")).toBe(0);
    await page.unroute(sending);
  });

  test("fan deletes a message, and moderators remove messages", async () => {
    await atWidth(390);
    await say("Deleted by its sender");
    const own = message("Deleted by its sender");
    await own.getByRole("button", { name: "Delete your message" }).click();
    await shot("chat-delete");
    expect(await violationsOf(page)).toEqual([]);
    await own.getByRole("button", { name: "Delete", exact: true }).click();
    await gone(own);
    await expect.poll(() => other.count(room, "Deleted by its sender")).toBe(0);

    await say("Removed by a moderator");
    await expect.poll(() => other.count(room, "Removed by a moderator")).toBe(1);
    const moderators = ["rooms", "moderators"];
    await runCommand([...moderators, "add", room, `lou.${run}`]);
    const path = `/api/auth/chat-rooms/${encodeURIComponent(room)}`;
    const event = await message("Removed by a moderator").getAttribute("data-event");
    await other.request(`${path}/messages/${encodeURIComponent(event ?? "")}`, "DELETE", { reason: "Off topic" });
    await gone(message("Removed by a moderator"));
    await page.goto("/#/me");
    await shown(page.getByRole("region", { name: "Removed messages" }).getByText("Off topic"));
    await shot("removed-messages");
    expect(await violationsOf(page)).toEqual([]);
    await runCommand([...moderators, "remove", room, `lou.${run}`]);

    const id = await page.evaluate(() => JSON.parse(localStorage.getItem("matchday.chat") ?? "{}").user_id as string);
    const me = id.slice(1, id.indexOf(":"));
    await runCommand([...moderators, "add", room, me]);
    await page.goto(`/#/match/${liveMatch}`);
    await page.reload();
    await other.say(room, "Removed by this fan");
    const rude = message("Removed by this fan");
    await rude.getByRole("button", { name: /^Moderate message from/ }).click();
    await shot("chat-moderate");
    expect(await violationsOf(page)).toEqual([]);
    await rude.getByRole("button", { name: "Remove", exact: true }).click();
    await gone(rude);
    await expect.poll(() => other.count(room, "Removed by this fan")).toBe(0);
    await runCommand([...moderators, "remove", room, me]);
    // The reload has emptied the cache, from which later tests show the list.
    await page.goto("/#/");
    await shown(list("Upcoming").getByRole("listitem").first());
    await page.goto(`/#/match/${liveMatch}`);
    await shown(log().locator(".message").last());
  });

  test("refused message cannot be sent again", async () => {
    const word = `forbidden${run}`;
    const filter = JSON.parse(await runCommand(["filters", "add", word, "--json"]));
    await page.route("**/send/m.room.message/**", (route) => route.abort());
    await page.getByRole("button", { name: "Leave" }).click();
    await gone(leave());
    const path = `/api/auth/chat-rooms/${encodeURIComponent(room)}/messages`;
    const attempt = () => {
      const sent = other.request(path, "POST", { body: `${word} ${randomInt(1_000_000)}` });
      return sent.then(
        () => "sent",
        (error) => String(error),
      );
    };
    await expect.poll(attempt).toContain("message_refused");
    await say(`So ${word}!`);
    const refused = message(word);
    await shown(refused.getByText("Not sent. This message breaks the rules of the chat."));
    expect(await refused.getByRole("button", { name: "Try again" }).count()).toBe(0);
    await shot("chat-refused");
    await refused.getByRole("button", { name: "Discard" }).click();
    await gone(refused);
    await runCommand(["filters", "remove", String(filter.id)]);
    await page.unroute("**/send/m.room.message/**");
    await say("Back in the room");
    await shown(leave());
  });
});

describe("tabs and connection", () => {
  test("two tabs show the same coins and predictions", async () => {
    const second = await fan.context.newPage();
    await second.goto("/#/");
    await shown(second.getByRole("region", { name: "Upcoming" }).getByRole("listitem").first());
    await page.goto("/#/me");
    const claim = page.getByRole("button", { name: /Claim \d+ coins/ });
    await shown(claim);
    const before = await coins(second);
    await claim.click();
    await shown(page.getByText(/^You got \d+ coins\./));
    await expect.poll(() => coins(second)).toBeGreaterThan(before);
    await expect.poll(() => coins(page)).toBe(await coins(second));
    await shown(page.getByRole("button", { name: /^Next: \d+ coins, tomorrow \d\d:\d\d$/ }));

    // A row that has no prediction yet in the other tab.
    const row = second.getByRole("region", { name: "Upcoming" }).locator(".row").filter({ hasText: "Predict" }).first();
    const link = (await row.getByRole("link").getAttribute("href")) ?? "";
    const same = second.locator(`.row a[href="${link}"]`);
    await page.goto(`/${link}`);
    const form = page.getByRole("form", { name: "Your prediction" });
    await form.getByRole("radio", { name: "Draw" }).check();
    await form.getByRole("button", { name: "Save prediction" }).click();
    await shown(form.getByText("Saved: Draw, 50%."));
    await shown(same.getByText("You: Draw, 50%"));

    // An open form without changes follows the other tab.
    await second.goto(`/${link}`);
    await shown(second.getByText("Saved: Draw, 50%."));
    await form.getByLabel("How sure are you?").fill("65");
    await form.getByRole("button", { name: "Save changes" }).click();
    await shown(second.getByText("Saved: Draw, 65%."));
    expect(await second.getByLabel("How sure are you?").inputValue()).toBe("65");
    await second.close();
  });

  test("shows that it is offline and catches up afterwards", async () => {
    await atWidth(390);
    await page.goto(`/#/match/${liveMatch}`);
    await shown(log().locator(".message").last());
    await gone(page.getByText("Connecting…"));
    await fan.context.setOffline(true);
    await shown(page.getByText("You're offline. Showing the last update."));
    await shot("offline");
    expect(await violationsOf(page)).toEqual([]);
    await other.say(room, "Said meanwhile");
    await page.getByRole("navigation").getByRole("link", { name: "Leaderboard" }).click();
    await page.getByRole("navigation").getByRole("link", { name: "Matches" }).click();
    // The list is shown from the cache.
    await shown(list("Upcoming").getByRole("listitem").first());
    await fan.context.setOffline(false);
    await shown(page.getByText("Back online"));
    await gone(page.getByText("You're offline"));
    await gone(page.getByText("Connecting…"));
    await page.goto(`/#/match/${liveMatch}`);
    await shown(log().getByText("Said meanwhile"));
    await page.getByRole("navigation").getByRole("link", { name: "Leaderboard" }).click();
    await shown(page.getByRole("table").or(page.getByText("No points yet.")));
    for (const width of widths) {
      await atWidth(width);
      await fits(`leaderboard at ${width}`);
      await page.goto("/#/me");
      await shown(page.getByText("This device"));
      await shot("me");
      await fits(`own page at ${width}`);
      await page.goto("/#/table");
      await shown(page.getByRole("table").or(page.getByText("No points yet.")));
    }
  });
});

describe("end of a session", () => {
  test("suspended fan sees an explanation and returns after the suspension", async () => {
    await page.goto("/#/");
    await shown(list("Upcoming").getByRole("listitem").first());
    await runCommand(["users", "ban", fansName, "--reason", "Test"]);
    await page.goto("/#/me");
    const heading = page.getByRole("heading", { name: "Your account is suspended" });
    await shown(heading);
    await shown(page.getByText("contact support"));
    for (const width of widths) {
      await atWidth(width);
      await shot("suspended");
      expect(await violationsOf(page)).toEqual([]);
      await fits(`suspended at ${width}`);
    }
    await page.getByRole("button", { name: "Check again" }).click();
    await shown(page.getByText("Your account is still suspended."));

    // A new login is refused too.
    const stranger = await stage.device();
    await stranger.page.goto("/");
    await stranger.page.getByLabel("Phone number").fill(fansPhone);
    await stranger.page.getByRole("button", { name: "Send code" }).click();
    const field = stranger.page.getByLabel(/Code sent to/);
    await shown(field);
    await field.fill(await codeOf(fansPhone));
    await stranger.page.getByRole("button", { name: "Log in", exact: true }).click();
    await shown(stranger.page.getByRole("heading", { name: "Your account is suspended" }));
    await stranger.page.getByRole("button", { name: "Use another number" }).click();
    await shown(stranger.page.getByLabel("Phone number"));
    await stranger.context.close();

    await runCommand(["users", "unban", fansName, "--reason", "Test"]);
    // The service applies it within seconds.
    await expect
      .poll(
        async () => {
          if (await heading.isVisible()) await page.getByRole("button", { name: "Check again" }).click();
          await page
            .getByText("Your account is still suspended.")
            .or(page.getByRole("navigation", { name: "Pages", exact: true }))
            .waitFor();
          return heading.isVisible();
        },
        { timeout: 30_000, interval: 500 },
      )
      .toBe(false);
    await shown(page.getByRole("navigation", { name: "Pages", exact: true }));
  });

  test("every tab explains an ended session and a deleted account", async () => {
    await atWidth(390);
    const second = await fan.context.newPage();
    await second.goto("/#/table");
    await shown(second.getByRole("navigation", { name: "Pages", exact: true }));
    const session = await logInByApi(fansPhone);
    const { data } = await session.request<{ data: { id: number; current: boolean }[] }>("/api/auth/sessions");
    for (const { id, current } of data) if (!current) await session.request(`/api/auth/sessions/${id}`, "DELETE");
    await page.goto("/#/");
    for (const tab of [page, second]) await shown(tab.getByRole("heading", { name: "You've been logged out" }));
    await page.reload();
    await shown(page.getByRole("heading", { name: "You've been logged out" }));
    await shot("ended");
    expect(await violationsOf(page)).toEqual([]);
    await page.getByRole("button", { name: "Log in again" }).click();
    await logIn(page, fansPhone);
    // The other tab is logged in too.
    await shown(second.getByRole("navigation", { name: "Pages", exact: true }));

    await page.goto("/#/me");
    await page.getByRole("button", { name: "Delete my account" }).click();
    await page.getByRole("button", { name: "Send code" }).click();
    const field = page.getByLabel("Code sent to your phone");
    await shown(field);
    const code = await codeOf(fansPhone);
    await field.focus();
    await page.keyboard.insertText(`${code.slice(0, 3)} ${code.slice(3)}`);
    await page.getByRole("button", { name: "Delete permanently" }).click();
    for (const tab of [page, second]) await shown(tab.getByRole("heading", { name: "Your account has been deleted" }));
    await shot("deleted");
    expect(await page.evaluate(() => localStorage.length)).toBe(0);
    await second.close();
    await page.getByRole("button", { name: "Back to login" }).click();
    await shown(page.getByLabel("Phone number"));
    // The chat library logs the failures that the tests caused.
    expect(fan.faults.filter((fault) => !/ConnectionError|refresh token/.test(fault))).toEqual([]);
  });
});
