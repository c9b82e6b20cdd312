/** Where the token is kept between visits. On a phone this is the Keychain or the Keystore. */
export interface TokenStorage {
  load(): string | null | Promise<string | null>;
  save(token: string): void | Promise<void>;
  clear(): void | Promise<void>;
}

/** Keeps the token as long as the program runs. */
export function memoryStorage(token: string | null = null): TokenStorage {
  let kept = token;
  return {
    load: () => kept,
    save: (token) => {
      kept = token;
    },
    clear: () => {
      kept = null;
    },
  };
}

/** Keeps the token in the browser. Every script of the page can read it there: allow no foreign ones. */
export function browserStorage(key = "matchday.token"): TokenStorage {
  return {
    load: () => localStorage.getItem(key),
    save: (token) => localStorage.setItem(key, token),
    clear: () => localStorage.removeItem(key),
  };
}
