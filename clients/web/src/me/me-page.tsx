import { useState } from "react";
import { logOut, useMe } from "../session/session.ts";
import { Page } from "../ui/page.tsx";
import { Calibration } from "./calibration.tsx";
import { Coins } from "./coins.tsx";
import "./me.css";
import { Leaving } from "./leaving.tsx";
import { Reminders } from "./reminders.tsx";
import { Sessions } from "./sessions.tsx";

/** One's own page. */
export function MePage() {
  const { me } = useMe();
  const [isBusy, setBusy] = useState(false);
  return (
    <Page
      title="You"
      heading={
        <span className="me-name">
          {me.name ?? me.username}
          <span className="small soft">
            {me.name != null && `${me.username} · `}
            {me.points} points
          </span>
        </span>
      }
    >
      <div className="me-halves">
        <Coins />
        <Calibration />
        <div className="stack me-rest">
          <Reminders />
          <Sessions />
          <Leaving />
          <button
            type="button"
            className="button quiet wide"
            disabled={isBusy}
            onClick={() => {
              setBusy(true);
              // The page forgets the session in any case.
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
