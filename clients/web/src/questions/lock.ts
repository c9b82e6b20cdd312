import { useEffect, useState } from "react";
import { dateAndTime } from "../ui/time.ts";

const [minute, hour, day] = [60_000, 3_600_000, 86_400_000];

/** Time until a question locks: "Locks in 2 hours", or the date if that is more than a day away. */
export function lockText(time: string, now: number): string {
  const rest = Date.parse(time) - now;
  if (rest <= 0) return "Locks now";
  if (rest < minute) return "Locks in less than a minute";
  if (rest >= day) return `Locks ${dateAndTime(time)}`;
  const [hours, minutes] = [Math.floor(rest / hour), Math.floor((rest % hour) / minute)];
  // Far from the lock, minutes are noise.
  const parts = [hours > 0 && unit(hours, "hour"), hours < 2 && minutes > 0 && unit(minutes, "minute")];
  return `Locks in ${parts.filter(Boolean).join(" ")}`;
}

const unit = (number: number, name: string) => `${number} ${name}${number === 1 ? "" : "s"}`;

/** Milliseconds between two updates of a displayed time. */
const tick = 10_000;

/** The time of the device, updated while the component is mounted. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), tick);
    return () => clearInterval(timer);
  }, []);
  return now;
}
