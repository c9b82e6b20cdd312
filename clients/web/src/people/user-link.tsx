import type { ReactNode } from "react";
import { Link } from "wouter";
import { Name } from "../ui/name.tsx";
import { Avatar } from "./avatar.tsx";
import { nameOf, type Person, profilePath } from "./person.ts";
import "./people.css";

/** Name of a user, linked to the profile. */
export function UserLink({ user }: { user: Person }) {
  return (
    <Link href={profilePath(user.id)} className="user-link">
      <Name>{nameOf(user)}</Name>
    </Link>
  );
}

/** Picture and linked name of a user, with further lines below the name. */
export function UserCell({ user, size, children }: { user: Person; size?: number; children?: ReactNode }) {
  return (
    <span className="user-cell">
      <Avatar user={user} {...(size && { size })} />
      <span className="user-text">
        <UserLink user={user} />
        {children}
      </span>
    </span>
  );
}
