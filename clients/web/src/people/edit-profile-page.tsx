import { Link } from "wouter";
import { useMe } from "../session/session.ts";
import { Back } from "../ui/back.tsx";
import { Page } from "../ui/page.tsx";
import { NameForm } from "./name-form.tsx";
import "./people.css";
import { profilePath } from "./person.ts";
import { PictureForm } from "./picture/picture-form.tsx";
import { TeamsForm } from "./teams-form.tsx";
import { UsernameForm } from "./username-form.tsx";

/** The parts of the profile that the fan can change. */
export function EditProfilePage() {
  const { me } = useMe();
  return (
    <Page title="Edit profile" className="edit-profile" before={<Back to="/me">You</Back>}>
      <div className="settings-halves">
        <div className="stack">
          <PictureForm />
          <NameForm />
          <UsernameForm />
        </div>
        <div className="stack">
          <TeamsForm />
          <p className="small soft">
            See <Link href={profilePath(me.id)}>your profile</Link>, or choose who can see it in your{" "}
            <Link href="/me/privacy">privacy settings</Link>.
          </p>
        </div>
      </div>
    </Page>
  );
}
