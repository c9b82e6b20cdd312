import { type CSSProperties, useState } from "react";

/** A team's crest. It says nothing that the name beside it does not. */
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
  return <img className="crest" style={style} src={address(team.logo)} alt="" onError={() => setMissing(true)} />;
}

/** The demo's crests have the address that the service has on its own machine. A phone that shows this page from the
 * development server cannot reach that; the development server can. */
function address(logo: string): string {
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
