import type { ResponseBody } from "@matchday/client";

/** A user, as lists and tables contain them. Some lists have no picture. */
export interface Person {
  id: number;
  username: string;
  name: string | null;
  avatar_url?: string | null;
}

export type Profile = ResponseBody<"/api/auth/users/{user}", "get">["data"];
export type Follow = ResponseBody<"/api/auth/follows", "get">["data"][number];
export type Privacy = ResponseBody<"/api/auth/me/privacy", "get">["data"];

/** Users can hide their name, or have none. */
export const nameOf = ({ name, username }: Pick<Person, "name" | "username">): string => name ?? username;

/** Path of a profile, by id or username. */
export const profilePath = (user: number | string): string => `/users/${encodeURIComponent(user)}`;

/** Up to two letters that stand for a user without a picture: "ML" for Mara Lind, "SW" for swift_winger. */
export function initialsOf(person: Pick<Person, "name" | "username">): string {
  const words = nameOf(person).match(/\p{L}[\p{L}\p{M}]*/gu) ?? [];
  const letters = [words[0], words.length > 1 ? words.at(-1) : undefined].map((word) => [...(word ?? "")][0] ?? "");
  return letters.join("").toLocaleUpperCase("en");
}
