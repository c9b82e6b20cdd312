import { useState } from "react";
import { matchday } from "../session/session.ts";
import { notifyTabs } from "../ui/refresh.ts";
import { errorMessage } from "../ui/states.tsx";
import { nameOf, type Person } from "./person.ts";

const refusals: Record<string, string> = {
  too_many_follows: "You follow as many people as possible. Unfollow someone first.",
  not_found: "You can't follow this person any more.",
};

interface Props {
  user: Person;
  isFollowing: boolean;
  /** Whether the user follows the fan: then following is "Follow back". */
  followsMe: boolean;
  changed: (isFollowing: boolean) => void;
  className?: string;
}

/** Follows or unfollows a user. Unfollowing needs no confirmation, because the button stays and follows again. */
export function FollowButton({ user, isFollowing, followsMe, changed, className = "" }: Props) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  async function toggle() {
    if (isBusy) return;
    setBusy(true);
    setError(undefined);
    try {
      const params = { path: { user: String(user.id) } };
      if (isFollowing) await matchday.delete("/api/auth/follows/{user}", { params });
      else await matchday.put("/api/auth/follows/{user}", { params });
      changed(!isFollowing);
      notifyTabs();
    } catch (error) {
      setError(error);
    }
    setBusy(false);
  }
  const label = isFollowing ? "Unfollow" : followsMe ? "Follow back" : "Follow";
  return (
    <>
      {/* Not disabled while it is busy, because a disabled button loses the focus. */}
      <button
        type="button"
        className={`button ${isFollowing ? "quiet " : ""}${className}`}
        aria-label={`${label}: ${nameOf(user)}`}
        aria-busy={isBusy}
        onClick={toggle}
      >
        {label}
      </button>
      {error !== undefined && (
        <p className="notice follow-error" role="alert">
          {errorMessage(error, refusals)}
        </p>
      )}
    </>
  );
}
