import { useState } from "react";
import { Link } from "wouter";
import { formatNumber } from "../matches/labels.ts";
import { Avatar } from "../people/avatar.tsx";
import { profilePath } from "../people/person.ts";
import { logOut, useMe } from "../session/session.ts";
import { Name } from "../ui/name.tsx";
import { Page } from "../ui/page.tsx";
import { Calibration } from "./calibration.tsx";
import { Coins } from "./coins.tsx";
import "./me.css";
import { AccountData } from "./account-data.tsx";
import { ChatNotices } from "./chat-notices.tsx";
import { Sessions } from "./sessions.tsx";

/** The fan's own page: coins, confidence chart and settings. */
export function MePage() {
  const { me } = useMe();
  const [isBusy, setBusy] = useState(false);
  const links = [
    { href: profilePath(me.id), name: "Your profile" },
    { href: "/me/profile", name: "Edit profile" },
    { href: "/me/following", name: "Following" },
    { href: "/me/followers", name: "Followers" },
    { href: "/me/privacy", name: "Privacy" },
    { href: "/me/notifications", name: "Notifications" },
  ];
  return (
    <Page
      title="You"
      heading={
        <span className="me-top">
          <Avatar user={me} size={64} />
          <span className="me-name">
            <Name>{me.name ?? me.username}</Name>
            <span className="small soft">
              {me.name != null && `${me.username} · `}
              {formatNumber(me.points)} {me.points === 1 ? "point" : "points"}
            </span>
          </span>
        </span>
      }
    >
      <nav className="me-links" aria-label="Your pages">
        {links.map(({ href, name }) => (
          <Link key={href} href={href} className="button quiet low">
            {name}
          </Link>
        ))}
      </nav>
      <div className="me-halves">
        <Coins />
        <Calibration />
        <div className="stack me-rest">
          <ChatNotices />
          <Sessions />
          <AccountData />
          <button
            type="button"
            className="button quiet wide"
            disabled={isBusy}
            onClick={() => {
              setBusy(true);
              // The browser clears the session even if the request fails.
              logOut().catch(() => {});
            }}
          >
            {isBusy ? "Logging out…" : "Log out"}
          </button>
        </div>
      </div>
    </Page>
  );
}
