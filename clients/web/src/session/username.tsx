import { MatchdayError } from "@matchday/client";
import { useEffect, useState } from "react";
import { matchday } from "./session.ts";

interface Props {
  label?: string;
  /** Shown while there is no hint about the value. */
  help?: string;
  value: string;
  setValue: (value: string) => void;
  fault: string | undefined;
}

/** Field for a username that the fan chooses. It cannot be changed later, because the chat id contains it. */
export function UsernameField(props: Props) {
  const { label = "Username", value, setValue, fault } = props;
  const { help = "You can't change it later. Leave it empty to get a random one." } = props;
  const [hint, setHint] = useState("");
  const [suggestions, setSuggestions] = useState<string[]>([]);

  useEffect(() => {
    const stop = new AbortController();
    setHint(""); // belongs to the previous value
    // Delayed while the fan types, because requests without a session are rate-limited.
    const timer = setTimeout(async () => {
      const found = await check(value.trim(), stop.signal);
      if (stop.signal.aborted) return;
      setHint(found.hint);
      setSuggestions(found.suggestions);
    }, 400);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [value]);

  return (
    <div className="field">
      <label htmlFor="username">{label}</label>
      <input
        id="username"
        autoComplete="username"
        autoCapitalize="none"
        spellCheck={false}
        maxLength={30}
        value={value}
        onChange={(event) => setValue(event.target.value)}
        aria-invalid={fault !== undefined}
        aria-describedby="username-help"
      />
      <p id="username-help" className={fault ? "fault" : "small soft"} aria-live="polite">
        {fault ?? (hint || help)}
      </p>
      {suggestions.length > 0 && (
        <ul className="suggestions" aria-label="Available usernames">
          {suggestions.map((name) => (
            <li key={name}>
              <button type="button" className="button quiet low" onClick={() => setValue(name)}>
                {name}
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

async function check(username: string, signal: AbortSignal): Promise<{ hint: string; suggestions: string[] }> {
  try {
    if (username === "") {
      const body = { base: "fan", include_numbers: false };
      return {
        hint: "",
        suggestions: (await matchday.post("/api/auth/username/generate", { body, signal })).suggestions,
      };
    }
    const { message, available, suggestions } = await matchday.post("/api/auth/username/check", {
      body: { username },
      signal,
    });
    return { hint: message, suggestions: available ? [] : (suggestions ?? []) };
  } catch (error) {
    // The login works without suggestions.
    return { hint: error instanceof MatchdayError ? error.message : "", suggestions: [] };
  }
}
