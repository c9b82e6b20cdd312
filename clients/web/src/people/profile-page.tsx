import { MatchdayError } from "@matchday/client";
import { useState } from "react";
import { Link } from "wouter";
import { counted, formatNumber } from "../matches/labels.ts";
import { matchday, useMe } from "../session/session.ts";
import { Back } from "../ui/back.tsx";
import { Name } from "../ui/name.tsx";
import { Page } from "../ui/page.tsx";
import { useResource } from "../ui/resource.ts";
import { previousPath } from "../ui/scroll.ts";
import { Loaded } from "../ui/states.tsx";
import { Avatar } from "./avatar.tsx";
import { Block, Blocked } from "./block.tsx";
import { ConfidenceSummary } from "./confidence-summary.tsx";
import { FollowButton } from "./follow-button.tsx";
import "./people.css";
import { nameOf, type Profile } from "./person.ts";
import { Record } from "./record.tsx";
import { Teams } from "./teams.tsx";

/** Profile of a user, by id or username. */
export function ProfilePage({ user }: { user: string }) {
  const { me } = useMe();
  const resource = useResource(
    async (signal) => (await matchday.get("/api/auth/users/{user}", { params: { path: { user } }, signal })).data,
    [user],
    "profile",
  );
  const { data: profile, error } = resource;
  const [isBlocked, setBlocked] = useState(false);
  const [from] = useState(previousPath);
  const isGone = error instanceof MatchdayError && error.status === 404;
  const isOwn = profile?.id === me.id;
  return (
    <Page
      title={profile && !isGone ? nameOf(profile) : "Profile"}
      heading={null}
      className="profile"
      before={<Back to={from ?? "/table"}>Back</Back>}
    >
      {profile && isBlocked ? (
        <Blocked
          user={profile}
          lifted={() => {
            setBlocked(false);
            resource.reload();
          }}
        />
      ) : isGone ? (
        <Gone />
      ) : (
        <Loaded resource={resource}>
          {(profile) => (
            <>
              <Top
                profile={profile}
                isOwn={isOwn}
                followed={(is_following) =>
                  resource.change((profile) => ({
                    ...profile,
                    is_following,
                    followers_count: Math.max(0, profile.followers_count + (is_following ? 1 : -1)),
                  }))
                }
              />
              <div className="profile-halves">
                <Parts profile={profile} isOwn={isOwn} />
              </div>
              {!isOwn && <Block user={profile} blocked={() => setBlocked(true)} />}
            </>
          )}
        </Loaded>
      )}
    </Page>
  );
}

/** An account that does not exist, is suspended, or is invisible because of a block. The service does not say which. */
function Gone() {
  return (
    <div className="card empty" role="alert">
      <p>This profile isn't available.</p>
      <p className="small">
        If you blocked this person, you can unblock them in your <Link href="/me/privacy">privacy settings</Link>.
      </p>
    </div>
  );
}

interface TopProps {
  profile: Profile;
  isOwn: boolean;
  followed: (isFollowing: boolean) => void;
}

function Top({ profile, isOwn, followed }: TopProps) {
  const { username, name, followers_count, following_count, is_following, follows_me } = profile;
  return (
    <section className="profile-top on-pitch" aria-label="About">
      <Avatar user={profile} size={96} />
      <div className="profile-names">
        <p className="profile-name">
          <Name>{nameOf(profile)}</Name>
        </p>
        <p className="profile-username">
          {name !== null && <Name>{username}</Name>}
          {follows_me && <span className="tag">Follows you</span>}
        </p>
      </div>
      <ul className="profile-counts numbers">
        <Count number={followers_count} noun="follower" href={isOwn ? "/me/followers" : undefined} />
        <Count number={following_count} noun="following" href={isOwn ? "/me/following" : undefined} />
      </ul>
      <div className="profile-actions">
        {isOwn ? (
          <>
            <Link href="/me/profile" className="button lantern">
              Edit profile
            </Link>
            <Link href="/me/privacy" className="button quiet">
              Privacy
            </Link>
          </>
        ) : (
          <FollowButton
            user={profile}
            isFollowing={is_following}
            followsMe={follows_me}
            changed={followed}
            className={is_following ? "" : "lantern"}
          />
        )}
      </div>
    </section>
  );
}

function Count(props: { number: number; noun: "follower" | "following"; href: string | undefined }) {
  const { number, noun, href } = props;
  const content = (
    <>
      <strong>{formatNumber(number)}</strong> {noun === "follower" && number !== 1 ? "followers" : noun}
    </>
  );
  return <li>{href ? <Link href={href}>{content}</Link> : content}</li>;
}

function Parts({ profile, isOwn }: { profile: Profile; isOwn: boolean }) {
  const { teams, record, calibration, leagues } = profile;
  const isPartlyHidden = teams === null || record === null;
  return (
    <>
      <div className="stack">
        {record && <Record record={record} isOwn={isOwn} />}
        {isPartlyHidden && (
          <p className="card empty">
            <Name>{nameOf(profile)}</Name> keeps {hiddenParts(profile)} private.
          </p>
        )}
      </div>
      <div className="stack">
        {teams && <Teams teams={teams} isOwn={isOwn} />}
        {calibration && calibration.count > 0 && <ConfidenceSummary calibration={calibration} isOwn={isOwn} />}
        {leagues.length > 0 && (
          <section className="card" aria-labelledby="profile-leagues">
            <header>
              <h2 id="profile-leagues">{isOwn ? "Leagues" : "Leagues you share"}</h2>
              <span className="small soft">{counted(leagues.length, "league")}</span>
            </header>
            <ul className="link-list">
              {leagues.map(({ id, name }) => (
                <li key={id}>
                  <Link href={`/leagues/${id}`}>
                    <Name>{name}</Name>
                    <span className="chevron" aria-hidden="true">
                      ›
                    </span>
                  </Link>
                </li>
              ))}
            </ul>
          </section>
        )}
      </div>
    </>
  );
}

function hiddenParts({ teams, record }: Profile): string {
  if (teams === null && record === null) return "their teams and results";
  return teams === null ? "their teams" : "their results";
}
