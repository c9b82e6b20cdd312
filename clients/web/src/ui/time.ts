/** The page speaks English, and so do its dates; the clock is that of the device. */
const locale = "en-GB";
const clock = new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit" });
const weekday = new Intl.DateTimeFormat(locale, { weekday: "long", day: "numeric", month: "long" });
const short = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

export const timeOfDay = (time: string | Date): string => clock.format(new Date(time));
export const dateAndTime = (time: string | Date): string => short.format(new Date(time));

/** The day of a moment where the device is, as something to compare. */
export function dayOf(time: string | Date): string {
  const date = new Date(time);
  const two = (number: number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** "Today", "Tomorrow", or the weekday and the date. */
export function nameOfDay(time: string | Date, now = new Date()): string {
  const near = { [-1]: "Yesterday", 0: "Today", 1: "Tomorrow" };
  for (const [days, name] of Object.entries(near)) {
    const other = new Date(now);
    other.setDate(now.getDate() + Number(days));
    if (dayOf(other) === dayOf(time)) return name;
  }
  return weekday.format(new Date(time));
}

/** "in 25 min", "in 3 h 5 min"; nothing when it is further away than half a day, or over. */
export function until(time: string, now = Date.now()): string | undefined {
  const minutes = Math.ceil((Date.parse(time) - now) / 60_000);
  if (minutes <= 0 || minutes >= 12 * 60) return undefined;
  const hours = Math.floor(minutes / 60);
  return `in ${hours ? `${hours} h ` : ""}${minutes % 60 ? `${minutes % 60} min` : ""}`.trim();
}
