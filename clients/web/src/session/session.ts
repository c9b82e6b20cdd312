import { browserStorage, Matchday, type Schemas } from "@matchday/client";
import { createContext, useContext, useSyncExternalStore } from "react";

const storage = browserStorage();
const listeners = new Set<() => void>();
const tell = () => {
  for (const listener of listeners) listener();
};

/** Who is told when the session is over, however it ended. */
export const endings = new Set<() => void>();

/** The service, at the address where the page came from. */
export const matchday = new Matchday({ storage, onLoggedOut: ended });

export async function logIn(phone: string, code: string, username: string | undefined): Promise<void> {
  const login = await matchday.logIn(phone, code, username ? { username } : {});
  chatCredentials.save(login.matrix_credentials);
  tell();
}

export async function logOut(): Promise<void> {
  try {
    await matchday.logOut();
  } finally {
    ended();
  }
}

/** Deletes the account, and forgets what the page has of it. */
export async function deleteAccount(code: string): Promise<void> {
  await matchday.deleteAccount(code);
  ended();
}

function ended() {
  chatCredentials.save(null);
  for (const ending of endings) ending();
  tell();
}

export function useIsLoggedIn(): boolean {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      // Somebody may log out in another tab.
      window.addEventListener("storage", listener);
      return () => {
        listeners.delete(listener);
        window.removeEventListener("storage", listener);
      };
    },
    () => storage.load() !== null,
  );
}

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

/** Who is logged in; every page but the login has one. */
export const MeContext = createContext<{ me: Schemas["MeData"]; reload: () => void } | null>(null);

export function useMe() {
  const context = useContext(MeContext);
  if (!context) throw new Error("nobody is logged in here");
  return context;
}
