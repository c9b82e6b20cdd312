import { matchday } from "../session/session.ts";
import { Name } from "../ui/name.tsx";
import { allPages } from "../ui/pages.ts";
import { useResource } from "../ui/resource.ts";
import { Loaded } from "../ui/states.tsx";
import { dateAndTime } from "../ui/time.ts";
import { Unblock } from "./block.tsx";

/** Users whom the fan has blocked, last blocked first. */
export function BlockedUsers() {
  const resource = useResource(
    (signal) =>
      allPages((page) => matchday.get("/api/auth/blocks", { params: { query: { page, per_page: 100 } }, signal })),
    [],
    "blocks",
  );
  return (
    <section className="card" aria-labelledby="blocked">
      <header>
        <h2 id="blocked">Blocked people</h2>
      </header>
      <Loaded resource={resource}>
        {(users) =>
          users.length === 0 ? (
            <p className="soft">You haven't blocked anyone. To block a person, open their profile.</p>
          ) : (
            <ul className="people plain">
              {users.map((user) => (
                <li key={user.id}>
                  <span className="user-text">
                    <Name>{user.username}</Name>
                    <span className="small soft">Blocked {dateAndTime(user.blocked_at)}</span>
                  </span>
                  <Unblock user={user} lifted={resource.reload} />
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
    </section>
  );
}
