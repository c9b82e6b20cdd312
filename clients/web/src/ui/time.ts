/** Dates are in English, like the app, and in the time zone of the device. */
const locale = "en-GB";
const clock = new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit" });
const weekday = new Intl.DateTimeFormat(locale, { weekday: "long", day: "numeric", month: "long" });
const short = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

const part = (options: Intl.DateTimeFormatOptions) => new Intl.DateTimeFormat(locale, options);
const [weekdayShort, monthShort] = [part({ weekday: "short" }), part({ month: "short" })];

export const timeOfDay = (time: string | Date): string => clock.format(new Date(time));
export const dateAndTime = (time: string | Date): string => short.format(new Date(time));

/** Local day, like "2026-11-20". */
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

/** "in 25 min" or "in 3 h 5 min"; `undefined` for the past and from twelve hours on. */
export function until(time: string, now = Date.now()): string | undefined {
  const minutes = Math.ceil((Date.parse(time) - now) / 60_000);
  if (minutes <= 0 || minutes >= 12 * 60) return undefined;
  const hours = Math.floor(minutes / 60);
  return `in ${hours ? `${hours} h ` : ""}${minutes % 60 ? `${minutes % 60} min` : ""}`.trim();
}

/** Parts of a local day like "2026-11-20", for the date strip. */
export function shortDay(day: string): { weekday: string; date: number; month: string } {
  const [year = 0, month = 1, date = 1] = day.split("-").map(Number);
  const moment = new Date(year, month - 1, date);
  return { weekday: weekdayShort.format(moment), date, month: monthShort.format(moment) };
}
