import { type CSSProperties, useState } from "react";

/** Crest of a team. Hidden from screen readers, because the name is always next to it. */
export function Crest({ team, size = 36 }: { team: { name: string; logo?: string | null }; size?: number }) {
  const [isMissing, setMissing] = useState(false);
  const style = { "--size": `${size}px` } as CSSProperties;
  if (!team.logo || isMissing) {
    return (
      <span className="crest letters" style={style} aria-hidden="true">
        {initials(team.name)}
      </span>
    );
  }
  return <img className="crest" style={style} src={crestUrl(team.logo)} alt="" onError={() => setMissing(true)} />;
}

/** Makes URLs of demo crests relative. They point to localhost, which a phone that uses the development server cannot
 * reach; the development server forwards them. */
function crestUrl(logo: string): string {
  return logo.replace(/^https?:\/\/[^/]+(?=\/demo\/)/, "");
}

function initials(name: string): string {
  return name
    .split(/\s+/)
    .map((word) => word[0])
    .join("")
    .slice(0, 3)
    .toUpperCase();
}
