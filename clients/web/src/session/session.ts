import { browserStorage, Matchday, MatchdayError, type Schemas } from "@matchday/client";
import { createContext, useContext, useSyncExternalStore } from "react";
import { onTabMessage, postToTabs } from "./tabs.ts";

/** Reason why a session ended. Each reason has a page. A logout has no reason: the app shows the login. */
export type Ending = "ended" | "suspended" | "deleted";

const tokenKey = "matchday.token";
const storage = browserStorage(tokenKey);

/** Stored for the tab, so that a reload still shows why the session ended. Ignored while there is a token. */
const endingKey = "matchday.ending";
let ending: Ending | undefined;
setEnding(storage.load() === null ? ((sessionStorage.getItem(endingKey) as Ending | null) ?? undefined) : undefined);

function setEnding(how: Ending | undefined): void {
  ending = how;
  if (how) sessionStorage.setItem(endingKey, how);
  else sessionStorage.removeItem(endingKey);
}

const listeners = new Set<() => void>();
const notify = () => {
  for (const listener of listeners) listener();
};

/** Handlers that run when the session ends for any reason. */
export const onSessionEnd = new Set<() => void>();

/** Client of the service at the origin of the page. */
export const matchday = new Matchday({
  storage,
  onLoggedOut: () => end("ended"),
  onSuspended: () => {
    if (ending !== "suspended") end("suspended");
  },
});

export async function logIn(phone: string, code: string, username: string | undefined): Promise<void> {
  try {
    const login = await matchday.logIn(phone, code, username ? { username } : {});
    chatCredentials.save(login.matrix_credentials);
    notify();
  } catch (error) {
    if (!isSuspension(error)) throw error;
    end("suspended");
  }
}

export async function logOut(): Promise<void> {
  try {
    await matchday.logOut();
  } finally {
    end(undefined);
  }
}

/** Deletes the account and its data in the browser. */
export async function deleteAccount(code: string): Promise<void> {
  await matchday.deleteAccount(code);
  end("deleted");
}

/** Checks whether the account is still suspended. If not, the app is shown again. */
export async function isStillSuspended(): Promise<boolean> {
  try {
    await matchday.get("/api/auth/me");
  } catch (error) {
    if (isSuspension(error)) return true;
    throw error;
  }
  setEnding(undefined);
  notify();
  return false;
}

/** Leaves the page that explains the end of the session and shows the login. */
export async function startAgain(): Promise<void> {
  // A suspended session is still stored. The service refuses to end it, so the error is ignored.
  if (storage.load() !== null) await logOut().catch(() => {});
  setEnding(undefined);
  notify();
}

function isSuspension(error: unknown): boolean {
  return error instanceof MatchdayError && error.code === "account_suspended";
}

function end(how: Ending | undefined): void {
  postToTabs({ kind: "ended", ending: how });
  ended(how);
}

function ended(how: Ending | undefined): void {
  setEnding(how);
  // A suspension may end, so the session is kept.
  if (how !== "suspended") chatCredentials.save(null);
  for (const listener of onSessionEnd) listener();
  notify();
}

onTabMessage((message) => {
  if (message.kind === "ended") ended(message.ending);
});

// Another tab has logged in, possibly as another fan: discard the state of this tab.
window.addEventListener("storage", ({ key, newValue }) => {
  if (key === tokenKey && newValue !== null) location.reload();
});

export type Session = "in" | "out" | Ending;

export function useSession(): Session {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      // Another tab may remove the token.
      window.addEventListener("storage", listener);
      return () => {
        listeners.delete(listener);
        window.removeEventListener("storage", listener);
      };
    },
    () => ending ?? (storage.load() === null ? "out" : "in"),
  );
}

export const hasToken = (): boolean => storage.load() !== null;

type Credentials = Schemas["MatrixCredentials"];

/** Chat credentials of the login, stored next to the token: each session has one chat device. */
export const chatCredentials = {
  key: "matchday.chat",
  load(): Credentials | null {
    return JSON.parse(localStorage.getItem(this.key) ?? "null");
  },
  save(credentials: Credentials | null) {
    if (credentials) localStorage.setItem(this.key, JSON.stringify(credentials));
    else localStorage.removeItem(this.key);
  },
};

/** The logged-in fan. Every page inside the app has one. */
export const MeContext = createContext<{ me: Schemas["MeData"]; reload: () => void } | null>(null);

export function useMe() {
  const context = useContext(MeContext);
  if (!context) throw new Error("useMe needs a logged-in fan");
  return context;
}
