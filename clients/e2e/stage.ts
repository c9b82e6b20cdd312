import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { promisify } from "node:util";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { type PreviewServer, preview } from "vite";

export const service = process.env.MATCHDAY_URL ?? "";
if (!service) throw new Error("set MATCHDAY_URL to the URL of a service; clients/with-service starts one");

const arguments_ = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** A browser, and a server for the built app that forwards requests to the service. */
export class Stage {
  private constructor(
    readonly browser: Browser,
    readonly server: PreviewServer,
    readonly url: string,
  ) {}

  static async open(): Promise<Stage> {
    // Port 0 selects a free port. The Vite configuration forwards the paths of the service to MATCHDAY_URL.
    const root = new URL("../web", import.meta.url).pathname;
    const server = await preview({ root, preview: { port: 0, host: "127.0.0.1", open: false }, logLevel: "warn" });
    const url = server.resolvedUrls?.local[0] ?? "";
    const executablePath = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync) ?? "/usr/bin/chromium";
    return new Stage(await chromium.launch({ executablePath, args: arguments_ }), server, url);
  }

  async close(): Promise<void> {
    await this.browser.close();
    await this.server.close();
  }

  /** Opens a separate browser context. Errors of its pages are collected in `faults`, which tests expect to be empty. */
  async device(options: Parameters<Browser["newContext"]>[0] = {}): Promise<Device> {
    const context = await this.browser.newContext({
      baseURL: this.url,
      viewport: { width: 390, height: 844 },
      locale: "en-GB",
      ...options,
    });
    const page = await context.newPage();
    const faults: string[] = [];
    page.on("pageerror", (error) => faults.push(String(error)));
    page.on("console", (message) => {
      // The browser also logs requests that a test causes to fail. The tests check that the page shows these failures.
      if (message.type() === "error" && !/Failed to load resource/.test(message.text())) faults.push(message.text());
    });
    return { context, page, faults };
  }
}

export interface Device {
  context: BrowserContext;
  page: Page;
  faults: string[];
}

/** Returns the last code that was sent to a phone, from the SMS log. */
export async function codeOf(phone: string): Promise<string> {
  const query = new URLSearchParams({ status: "sent", phone });
  const response = await fetch(`${service}/api/logs/sms?${query}`);
  const { data } = (await response.json()) as { data: { code: string }[] };
  return data[0]?.code ?? "";
}

export async function logIn(page: Page, phone: string, username?: string): Promise<void> {
  await page.goto("/");
  await page.getByLabel("Phone number").fill(phone);
  await page.getByRole("button", { name: "Send code" }).click();
  const field = page.getByLabel(/Code sent to/);
  await field.waitFor();
  await field.fill(await codeOf(phone));
  if (username) {
    await page.getByText("Choose a username").click();
    await page.getByRole("textbox", { name: "Username" }).fill(username);
    await page.getByText("The username is available.").waitFor();
  }
  await page.getByRole("button", { name: "Log in", exact: true }).click();
  await page.getByRole("heading", { name: "Matches", level: 1 }).waitFor();
}

/** Sets the status and score of a match with an import, as operators do. */
export async function writeScore(
  token: string,
  match: number,
  status: string,
  home: number,
  away: number,
): Promise<void> {
  const get = async (path: string) => {
    const response = await fetch(`${service}${path}`, { headers: { Authorization: `Bearer ${token}` } });
    return ((await response.json()) as { data: never }).data;
  };
  type Team = { id: number; name: string; slug: string; logo: string; country: string; founded: number };
  const event: { start_time: string; venue: string; round: number | null; home_team: Team; away_team: Team } =
    await get(`/api/auth/events/${match}`);
  const teams: Team[] = await get("/api/auth/teams?per_page=100");
  const [tournament]: { slug: string; name: string; logo: string }[] = await get("/api/auth/tournaments");
  const entry = ({ id }: Team) => {
    const { slug, name, logo, country, founded } = teams.find((team) => team.id === id) as Team;
    return { slug, name, logo, country, founded };
  };
  const [one, other] = [entry(event.home_team), entry(event.away_team)];
  const document = {
    sport: { slug: "football", name: "Football" },
    tournament: { slug: tournament?.slug, name: tournament?.name, logo: tournament?.logo },
    teams: [one, other],
    matches: [
      {
        key: keyOf(event),
        home: one.slug,
        away: other.slug,
        start_time: event.start_time,
        venue: event.venue,
        round: event.round,
        status,
        home_score: home,
        away_score: away,
      },
    ],
  };
  await runCommand(["fixtures", "import", "-"], JSON.stringify(document));
}

/** Returns the import key of the demo match. The API does not contain keys, so the match is recognised by its teams. */
function keyOf(event: { home_team: { name: string }; away_team: { name: string } }): string {
  const name = `${event.home_team.name} – ${event.away_team.name}`;
  if (name !== "Mill Lane – Northgate Rovers") throw new Error(`unexpected match: ${name}`);
  return "round-2-1";
}

/** Logs in through the API, without a browser. */
export async function logInByApi(phone: string, username?: string): Promise<ApiFan> {
  const post = async (path: string, body: object) => {
    const response = await fetch(service + path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response.json() as Promise<{
      data: { token: string; user: { username: string }; matrix_credentials: Chat };
    }>;
  };
  await post("/api/code/request", { phone });
  const code = await codeOf(phone);
  const { data } = await post("/api/code/verify", { phone, code, ...(username && { username }) });
  const discovery = await fetch(`${service}/.well-known/matrix/client`);
  const { "m.homeserver": homeserver } = (await discovery.json()) as { "m.homeserver": { base_url: string } };
  return new ApiFan(data.token, data.user.username, data.matrix_credentials, homeserver.base_url.replace(/\/$/, ""));
}

interface Chat {
  user_id: string;
  access_token: string;
}

/** A fan without a browser, who uses the APIs of the service and the homeserver. */
export class ApiFan {
  constructor(
    readonly token: string,
    readonly username: string,
    readonly chat: Chat,
    readonly homeserver: string,
  ) {}

  async request<T>(path: string, method = "GET", body?: object): Promise<T> {
    const response = await fetch(service + path, {
      method,
      headers: { Authorization: `Bearer ${this.token}`, "Content-Type": "application/json" },
      ...(body && { body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.json() as Promise<T>;
  }

  async #matrix<T>(path: string, method = "GET", body?: object): Promise<T> {
    const response = await fetch(`${this.homeserver}/_matrix/client/v3/rooms/${path}`, {
      method,
      headers: { Authorization: `Bearer ${this.chat.access_token}` },
      ...(body && { body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.json() as Promise<T>;
  }

  async say(room: string, text: string): Promise<void> {
    const transaction = `${Date.now()}.${Math.random()}`;
    const path = `${encodeURIComponent(room)}/send/m.room.message/${transaction}`;
    await this.#matrix(path, "PUT", { msgtype: "m.text", body: text });
  }

  /** Counts the messages with this text among the 100 newest of a room. */
  async count(room: string, text: string): Promise<number> {
    const path = `${encodeURIComponent(room)}/messages?dir=b&limit=100`;
    const { chunk } = await this.#matrix<{ chunk: { content: { body?: string } }[] }>(path);
    return chunk.filter(({ content }) => content.body === text).length;
  }
}

/** Runs a `matchday` command with the settings of the service. */
export async function runCommand(command: string[], input = ""): Promise<string> {
  const { MATCHDAY_URL: _, ...env } = process.env;
  const running = promisify(execFile)(process.env.SERVICE_BIN ?? "matchday", command, { env });
  running.child.stdin?.end(input);
  return (await running).stdout;
}
