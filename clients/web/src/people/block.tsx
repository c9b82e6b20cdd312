import { useEffect, useRef, useState } from "react";
import { matchday } from "../session/session.ts";
import { Name } from "../ui/name.tsx";
import { Ask } from "../ui/question.tsx";
import { notifyTabs } from "../ui/refresh.ts";
import { errorMessage } from "../ui/states.tsx";
import { nameOf, type Person } from "./person.ts";

/** Blocks a user, after a confirmation. */
export function Block({ user, blocked }: { user: Person; blocked: () => void }) {
  return (
    <div className="profile-block">
      <Ask
        label="Block this person"
        action="Block"
        act={async () => {
          await matchday.post("/api/auth/blocks/{user}", { params: { path: { user: String(user.id) } } });
          blocked();
          notifyTabs();
        }}
      >
        Block <Name>{nameOf(user)}</Name>? You won't see each other's profiles, and you'll stop following each other.
        You won't see their predictions or messages.
      </Ask>
    </div>
  );
}

/** Shown in place of the profile after a block. */
export function Blocked({ user, lifted }: { user: Person; lifted: () => void }) {
  const top = useRef<HTMLParagraphElement>(null);
  // The button that had the focus is gone.
  useEffect(() => top.current?.focus(), []);
  return (
    <div className="card empty blocked">
      <p ref={top} tabIndex={-1}>
        You blocked <Name>{nameOf(user)}</Name>.
      </p>
      <Unblock user={user} lifted={lifted} />
    </div>
  );
}

/** Lifts a block. The fan can block again, so it needs no confirmation. */
export function Unblock({
  user,
  lifted,
}: {
  user: Pick<Person, "id" | "username"> & { name?: string | null };
  lifted: () => void;
}) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  async function unblock() {
    setBusy(true);
    setError(undefined);
    try {
      await matchday.delete("/api/auth/blocks/{user}", { params: { path: { user: String(user.id) } } });
      notifyTabs();
      return lifted();
    } catch (error) {
      setError(error);
    }
    setBusy(false);
  }
  return (
    <>
      <button
        type="button"
        className="button quiet low"
        aria-label={`Unblock: ${user.name ?? user.username}`}
        onClick={unblock}
        disabled={isBusy}
      >
        Unblock
      </button>
      {error !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
    </>
  );
}
