/** Waits; rejects with the signal's reason when it is aborted. */
export function wait(milliseconds: number, signal?: AbortSignal | null): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const aborted = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

/** Pause before the next try in milliseconds: doubles up to `most`, with 25% jitter so that clients do not retry in step. */
export function backoff(failures: number, first: number, most: number): number {
  return Math.min(most, first * 2 ** Math.max(0, failures - 1)) * (0.75 + Math.random() * 0.5);
}
