import { browserStorage, Matchday, MatchdayError, type Schemas } from "@matchday/client";
import { createContext, useContext, useSyncExternalStore } from "react";
import { onNote, tellTabs } from "./tabs.ts";

/** Why the fan was sent away; each has a page of its own. After a logout there is none, and the login is shown. */
export type Ending = "ended" | "suspended" | "deleted";

const tokenKey = "matchday.token";
const storage = browserStorage(tokenKey);

/** Kept for the tab, so that a reload still says why the session is over. With a token the session is not over. */
const endingKey = "matchday.ending";
let ending: Ending | undefined;
setEnding(storage.load() === null ? ((sessionStorage.getItem(endingKey) as Ending | null) ?? undefined) : undefined);

function setEnding(how: Ending | undefined): void {
  ending = how;
  if (how) sessionStorage.setItem(endingKey, how);
  else sessionStorage.removeItem(endingKey);
}

const listeners = new Set<() => void>();
const tell = () => {
  for (const listener of listeners) listener();
};

/** Called when the session is over, however it ended. */
export const endings = new Set<() => void>();

/** The service, at the address where the page came from. */
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
    tell();
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

/** Deletes the account, and everything that the browser holds of it. */
export async function deleteAccount(code: string): Promise<void> {
  await matchday.deleteAccount(code);
  end("deleted");
}

/** Asks whether a suspended account can be used again, and returns to the app if so. */
export async function isStillSuspended(): Promise<boolean> {
  try {
    await matchday.get("/api/auth/me");
  } catch (error) {
    if (isSuspension(error)) return true;
    throw error;
  }
  setEnding(undefined);
  tell();
  return false;
}

/** Leaves the page that says how the session ended, for the login. */
export async function startAgain(): Promise<void> {
  // A suspended session is still stored; the service cannot end it now.
  if (storage.load() !== null) await logOut().catch(() => {});
  setEnding(undefined);
  tell();
}

function isSuspension(error: unknown): boolean {
  return error instanceof MatchdayError && error.code === "account_suspended";
}

function end(how: Ending | undefined): void {
  tellTabs({ kind: "ended", ending: how });
  ended(how);
}

function ended(how: Ending | undefined): void {
  setEnding(how);
  // A suspension may be lifted: the session is kept for that.
  if (how !== "suspended") chatCredentials.save(null);
  for (const listener of endings) listener();
  tell();
}

onNote((note) => {
  if (note.kind === "ended") ended(note.ending);
});

// Another tab logged in, perhaps as another fan: nothing of this tab can be kept.
window.addEventListener("storage", ({ key, newValue }) => {
  if (key === tokenKey && newValue !== null) location.reload();
});

export type Session = "in" | "out" | Ending;

export function useSession(): Session {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      // The token may be removed in another tab.
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

/** Chat credentials come with the login, and are kept beside the token: one session is one chat device. */
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

/** The logged-in fan; every page but the login has one. */
export const MeContext = createContext<{ me: Schemas["MeData"]; reload: () => void } | null>(null);

export function useMe() {
  const context = useContext(MeContext);
  if (!context) throw new Error("useMe needs a logged-in fan");
  return context;
}
