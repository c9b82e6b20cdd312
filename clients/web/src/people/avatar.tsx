import { type CSSProperties, useState } from "react";
import { initialsOf, type Person } from "./person.ts";
import "./avatar.css";

/** Number of background colours in `avatar.css`. */
const tones = 6;
/** Largest size in CSS pixels for which the small picture is sharp on a phone. */
const largestSmall = 64;

/** Picture of a user, or the initials. Hidden from screen readers, because the name is always next to it. */
export function Avatar({ user, size = 36 }: { user: Person; size?: number }) {
  const [missing, setMissing] = useState<string>();
  const style = { "--size": `${size}px` } as CSSProperties;
  const url = user.avatar_url ?? undefined;
  if (url === undefined || url === missing) {
    // The initials come from CSS, so that they are not part of the text when a table is copied or read aloud.
    return (
      <span
        className={`avatar tone-${user.id % tones}`}
        style={style}
        data-initials={initialsOf(user)}
        aria-hidden="true"
      />
    );
  }
  return (
    <img
      className="avatar"
      style={style}
      src={pictureUrl(url, size)}
      alt=""
      decoding="async"
      loading="lazy"
      onError={() => setMissing(url)}
    />
  );
}

function pictureUrl(url: string, size: number): string {
  // On a developer's machine, the URL points to localhost, which a phone that uses the development server cannot reach.
  // The development server forwards the path.
  const reachable = url.replace(/^http:\/\/(localhost|127\.0\.0\.1)(:\d+)?(?=\/api\/avatars\/)/, "");
  return size <= largestSmall ? `${reachable}?size=128` : reachable;
}
