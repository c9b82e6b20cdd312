import { useCallback, useState } from "react";
import { endings } from "../session/session.ts";

const prefix = "matchday.kept.";
endings.add(() => {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(prefix)) sessionStorage.removeItem(key);
});

/** State that lasts as long as the tab and the session: the fan finds a page as they left it. */
export function useKept<T>(name: string, initial: T): [T, (value: T) => void] {
  const [value, setValue] = useState<T>(() => {
    const stored = sessionStorage.getItem(prefix + name);
    return stored === null ? initial : JSON.parse(stored);
  });
  const keep = useCallback(
    (value: T) => {
      sessionStorage.setItem(prefix + name, JSON.stringify(value));
      setValue(value);
    },
    [name],
  );
  return [value, keep];
}
