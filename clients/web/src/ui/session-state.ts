import { useCallback, useState } from "react";
import { onSessionEnd } from "../session/session.ts";

const prefix = "matchday.kept.";
onSessionEnd.add(() => {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(prefix)) sessionStorage.removeItem(key);
});

/** State that lasts until the tab or the session ends, so that a page looks the same when the fan returns. */
export function useSessionState<T>(name: string, initial: T): [T, (value: T) => void] {
  const [value, setValue] = useState<T>(() => {
    const stored = sessionStorage.getItem(prefix + name);
    return stored === null ? initial : JSON.parse(stored);
  });
  const store = useCallback(
    (value: T) => {
      sessionStorage.setItem(prefix + name, JSON.stringify(value));
      setValue(value);
    },
    [name],
  );
  return [value, store];
}
