import { Link, useLocation } from "wouter";
import { matchday } from "../session/session.ts";
import { Name } from "../ui/name.tsx";
import { Ask } from "../ui/question.tsx";
import { notifyTabs } from "../ui/refresh.ts";
import { toast } from "../ui/toasts.tsx";
import type { League } from "./join.ts";

/** Lets the fan leave a league, after a confirmation. */
export function Leave({ league }: { league: League }) {
  const { id, name, me, member_count, visibility } = league;
  const [, navigate] = useLocation();
  if (me?.role === "owner" && member_count > 1) {
    return (
      <p className="small soft">
        To leave this league, first <Link href={`/leagues/${id}/settings`}>make another member the owner</Link>.
      </p>
    );
  }
  async function leave() {
    await matchday.post("/api/auth/leagues/{league}/leave", { params: { path: { league: id } } });
    notifyTabs();
    toast(
      `league ${id}`,
      <>
        You left <Name>{name}</Name>.
      </>,
    );
    navigate("/leagues", { replace: true });
  }
  const isLast = member_count === 1;
  return (
    <div>
      <Ask
        label={isLast ? "Delete league" : "Leave league"}
        action={isLast ? "Delete league" : "Leave league"}
        act={leave}
      >
        {isLast
          ? "You're the only member. If you leave, the league is deleted."
          : `Leave this league? ${visibility === "public" ? "You can join it again later." : "To join again, you need its link or code."}`}
      </Ask>
    </div>
  );
}
