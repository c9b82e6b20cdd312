/** Stores the session token. Use the Keychain or Keystore in mobile apps. */
export interface TokenStorage {
  load(): string | null | Promise<string | null>;
  save(token: string): void | Promise<void>;
  clear(): void | Promise<void>;
}

/** Stores the token in memory, until the program ends. */
export function memoryStorage(token: string | null = null): TokenStorage {
  let current = token;
  return {
    load: () => current,
    save: (token) => {
      current = token;
    },
    clear: () => {
      current = null;
    },
  };
}

/** Stores the token in `localStorage`. Every script of the page can read it, so do not allow third-party scripts. */
export function browserStorage(key = "matchday.token"): TokenStorage {
  return {
    load: () => localStorage.getItem(key),
    save: (token) => localStorage.setItem(key, token),
    clear: () => localStorage.removeItem(key),
  };
}
