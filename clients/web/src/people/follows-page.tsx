import { Link } from "wouter";
import { counted, formatNumber } from "../matches/labels.ts";
import { matchday } from "../session/session.ts";
import { Back } from "../ui/back.tsx";
import { useCursorList } from "../ui/cursor-list.ts";
import { More } from "../ui/more.tsx";
import { Name } from "../ui/name.tsx";
import { Page } from "../ui/page.tsx";
import { Loaded } from "../ui/states.tsx";
import { FollowButton } from "./follow-button.tsx";
import "./people.css";
import type { Follow } from "./person.ts";
import { UserCell } from "./user-link.tsx";

type Which = "following" | "followers";
const names: Record<Which, string> = { following: "Following", followers: "Followers" };
const perPage = 50;

/** Users whom the fan follows, or who follow the fan. Only the fan sees these lists. */
export function FollowsPage({ which }: { which: Which }) {
  const list = useCursorList<Follow>(
    (cursor, signal) => {
      const init = { params: { query: { per_page: perPage, ...(cursor !== null && { cursor }) } }, signal };
      return which === "following"
        ? matchday.get("/api/auth/follows", init)
        : matchday.get("/api/auth/followers", init);
    },
    ({ user }) => user.id,
    [which],
    "follows",
  );
  const { resource } = list;
  const changed = (id: number, is_following: boolean) =>
    resource.change((all) => ({
      ...all,
      items: all.items.map((item) => (item.user.id === id ? { ...item, is_following } : item)),
    }));
  return (
    <Page title={names[which]} className="follows" before={<Back to="/me">You</Back>}>
      <nav className="choice" aria-label="Lists">
        {(["following", "followers"] as const).map((value) => (
          <Link key={value} href={`/me/${value}`} replace aria-current={value === which ? "page" : undefined}>
            {names[value]}
          </Link>
        ))}
      </nav>
      <Loaded resource={resource}>
        {({ items, total }) =>
          items.length === 0 ? (
            <Empty which={which} />
          ) : (
            <>
              <p className="small soft" role="status">
                {which === "following"
                  ? `You follow ${formatNumber(total)} ${total === 1 ? "person" : "people"}.`
                  : counted(total, "follower")}
              </p>
              <ul className="card people">
                {items.map(({ user, is_following, follows_me }) => (
                  <li key={user.id}>
                    <UserCell user={user} size={44}>
                      <span className="small soft">
                        {user.name !== null && <Name>{user.username}</Name>}
                        {user.name !== null && which === "following" && follows_me && " · "}
                        {which === "following" && follows_me && "Follows you"}
                      </span>
                    </UserCell>
                    <FollowButton
                      user={user}
                      isFollowing={is_following}
                      followsMe={which === "followers"}
                      changed={(isFollowing) => changed(user.id, isFollowing)}
                      className="low"
                    />
                  </li>
                ))}
              </ul>
              <More list={list} />
            </>
          )
        }
      </Loaded>
    </Page>
  );
}

function Empty({ which }: { which: Which }) {
  return (
    <div className="card empty">
      {which === "following" ? (
        <>
          <p>You don't follow anyone yet.</p>
          <p className="small">
            Tap a name in the <Link href="/table">leaderboard</Link> or in a league to see a profile and follow the
            person.
          </p>
        </>
      ) : (
        <p>No one follows you yet.</p>
      )}
    </div>
  );
}
