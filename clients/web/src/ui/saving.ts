import { useRef, useState } from "react";
import type { Resource } from "./resource.ts";

/**
 * Saves changes of settings that are shown at once, so that a control keeps the focus and follows the finger.
 *
 * Requests are sent one after another: otherwise the service could apply two changes in the wrong order. After the last
 * response, the page shows the settings that the service has confirmed, because changes that are still shown may have failed.
 */
export function useSaving<T>(resource: Resource<T>) {
  const [message, setMessage] = useState("");
  const [error, setError] = useState<unknown>();
  const latest = useRef(0);
  const waiting = useRef(0);
  const queue = useRef<Promise<unknown>>(Promise.resolve());
  const confirmed = useRef<T>(undefined);

  /** Sends a request whose response has all settings, for parts of a page that show their own progress. */
  async function send(request: () => Promise<T>): Promise<void> {
    if (waiting.current === 0) confirmed.current = resource.data;
    waiting.current += 1;
    const sending = queue.current.then(request);
    queue.current = sending.catch(() => undefined);
    try {
      confirmed.current = await sending;
    } finally {
      waiting.current -= 1;
      const all = confirmed.current;
      if (waiting.current === 0 && all !== undefined) resource.change(() => all);
    }
  }
  async function save(change: (all: T) => T, request: () => Promise<T>): Promise<void> {
    latest.current += 1;
    const number = latest.current;
    setMessage("");
    setError(undefined);
    const sending = send(request);
    resource.change(change);
    try {
      await sending;
      if (number === latest.current) setMessage("Saved");
    } catch (error) {
      setError(error);
    }
  }
  return { message: error === undefined ? message : "", error, save, send };
}
