import { Link } from "wouter";
import { matchday, useMe } from "../session/session.ts";
import { Back } from "../ui/back.tsx";
import { Page } from "../ui/page.tsx";
import { useResource } from "../ui/resource.ts";
import { useSaving } from "../ui/saving.ts";
import { errorMessage, Loaded } from "../ui/states.tsx";
import { BlockedUsers } from "./blocked-users.tsx";
import "./people.css";
import { type Privacy, profilePath } from "./person.ts";

type Part = keyof Privacy;
type Audience = Privacy[Part];

const audiences: Record<Audience, string> = { everyone: "Everyone", following: "People I follow", nobody: "No one" };
const parts: { part: Part; name: string; details: string; options: readonly Audience[] }[] = [
  {
    part: "name",
    name: "Name",
    details: "Your name in leaderboards, leagues, chats and on your profile. Your username is always visible.",
    options: ["everyone", "nobody"],
  },
  {
    part: "teams",
    name: "Favourite teams",
    details: "The teams on your profile.",
    options: ["everyone", "following", "nobody"],
  },
  {
    part: "record",
    name: "Results",
    details: "The results on your profile. Leaderboards and leagues always show your points.",
    options: ["everyone", "following", "nobody"],
  },
  {
    part: "calibration",
    name: "Confidence",
    details: "How sure you are on average, and how often you're right.",
    options: ["everyone", "following", "nobody"],
  },
];

/** Who sees which part of the profile, and the blocked users. */
export function PrivacyPage() {
  const { me } = useMe();
  const resource = useResource(
    async (signal) => (await matchday.get("/api/auth/me/privacy", { signal })).data,
    [],
    "privacy",
  );
  const { message, error, save } = useSaving(resource);
  const choose = (part: Part, audience: Audience) =>
    save(
      (all) => ({ ...all, [part]: audience }),
      async () => (await matchday.put("/api/auth/me/privacy", { body: { [part]: audience } })).data,
    );
  return (
    <Page title="Privacy" className="privacy" before={<Back to="/me">You</Back>}>
      <div className="settings-halves">
        <section className="card" aria-labelledby="visible">
          <header>
            <h2 id="visible">Who can see what</h2>
            <span role="status" className="small saved-mark">
              {message}
            </span>
          </header>
          <Loaded resource={resource}>
            {(privacy) => (
              <div className="stack">
                {parts.map(({ part, name, details, options }) => (
                  <fieldset key={part} className="audience" aria-describedby={`${part}-details`}>
                    <legend>{name}</legend>
                    <p id={`${part}-details`} className="small soft">
                      {details}
                    </p>
                    <div className="choice">
                      {options.map((audience) => (
                        <label key={audience}>
                          <input
                            type="radio"
                            name={`privacy-${part}`}
                            checked={privacy[part] === audience}
                            onChange={() => choose(part, audience)}
                          />
                          {audiences[audience]}
                        </label>
                      ))}
                    </div>
                  </fieldset>
                ))}
                {error !== undefined && (
                  <p className="notice" role="alert">
                    {errorMessage(error)} Your settings haven't changed.
                  </p>
                )}
                <p className="small soft">
                  “People I follow” are the people whom you follow, not your followers. On{" "}
                  <Link href={profilePath(me.id)}>your profile</Link>, you see everything.
                </p>
              </div>
            )}
          </Loaded>
        </section>
        <BlockedUsers />
      </div>
    </Page>
  );
}
