// Takes the screenshots of the documentation: clients/with-service npm run pictures. With PICTURES_TO=FOLDER, takes
// screenshots of all pages in light and dark and saves them there, for a review after a change.
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "vitest";
import { logIn, logInByApi, Stage } from "./stage.js";

const folder = process.env.PICTURES_TO ?? new URL("../../docs/images", import.meta.url).pathname;
const documented = new Set([
  "matches-phone-light",
  "match-phone-dark",
  "chat-phone-light",
  "questions-phone-light",
  "table-phone-dark",
  "league-phone-light",
  "you-phone-light",
  "matches-desktop-dark",
  "match-desktop-light",
]);
const demoPhone = (number: number) => `+155501001${String(number).padStart(2, "0")}`;

/** Creates a league of demo fans and returns its id. */
async function createLeague(): Promise<number> {
  const owner = await logInByApi(demoPhone(0));
  const { data: tournaments } = await owner.request<{ data: { id: number }[] }>("/api/auth/tournaments");
  const body = { name: "Office league", tournament_ids: tournaments.map(({ id }) => id), max_members: 20 };
  const { data } = await owner.request<{ data: { id: number; code: string } }>("/api/auth/leagues", "POST", body);
  for (let number = 1; number <= 7; number += 1) {
    const member = await logInByApi(demoPhone(number));
    await member.request("/api/auth/leagues/join", "POST", { code: data.code });
  }
  return data.id;
}

const sizes = { phone: { width: 390, height: 844 }, desktop: { width: 1280, height: 800 } };
test("takes the screenshots", async () => {
  await mkdir(folder, { recursive: true });
  const stage = await Stage.open();
  const league = await createLeague();
  try {
    for (const colorScheme of ["light", "dark"] as const) {
      for (const [name, viewport] of Object.entries(sizes)) {
        const { page, context } = await stage.device({
          viewport,
          colorScheme,
          reducedMotion: "reduce",
          deviceScaleFactor: 1,
        });
        const take = async (what: string) => {
          const file = `${what}-${name}-${colorScheme}`;
          if (!process.env.PICTURES_TO && !documented.has(file)) return;
          await page.mouse.move(0, 0);
          await page.evaluate(() => document.fonts.ready.then(() => undefined));
          await page.waitForFunction(() => [...document.images].every((image) => image.complete));
          await page.screenshot({ path: join(folder, `${file}.png`) });
        };
        await page.goto("/");
        await page.getByLabel("Phone number").waitFor();
        await take("login");
        await logIn(page, "+15550100100");
        await page
          .getByRole("link", { name: /Mill Lane/ })
          .first()
          .waitFor();
        await page.getByText(/You: /).first().waitFor();
        await page.getByText("Connecting…").waitFor({ state: "detached" });
        await take("matches");
        await page.getByRole("link", { name: /Old Quay.*Harbour United/ }).click();
        const log = page.getByRole("region", { name: "Match chat" }).getByRole("log");
        await page.getByText("If you're right").waitFor();
        if (name === "desktop") await log.waitFor();
        await take("match");
        if (name === "phone") await page.getByRole("radio", { name: "Chat" }).check();
        await log.locator(".message").first().waitFor();
        await take("chat");
        await page.goto("/#/questions");
        await page.getByRole("radio", { name: "Harbour United" }).waitFor();
        await take("questions");
        await page.goto("/#/leagues");
        await page.getByText("Office league").waitFor();
        await take("leagues");
        await page.goto(`/#/leagues/${league}`);
        await page.getByRole("table").waitFor();
        await page.getByRole("combobox", { name: "Round" }).waitFor();
        await take("league");
        await page.goto("/#/leagues/new");
        await page.getByLabel("Name").waitFor();
        await take("league-new");
        await page.goto("/#/table");
        await page.getByRole("table").waitFor();
        await take("table");
        await page.goto("/#/me");
        await page.getByText("-day streak").waitFor();
        await page.getByRole("img", { name: /Your confidence/ }).waitFor();
        await take("you");
        await context.close();
      }
    }
  } finally {
    await stage.close();
  }
}, 300_000);
