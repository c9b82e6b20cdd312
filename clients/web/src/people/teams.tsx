import { Link } from "wouter";
import { Crest } from "../ui/crest.tsx";
import { Name } from "../ui/name.tsx";
import type { Profile } from "./person.ts";

/** Favourite teams of a user, the most important one first. */
export function Teams({ teams, isOwn }: { teams: NonNullable<Profile["teams"]>; isOwn: boolean }) {
  const { primary, other } = teams;
  const isEmpty = primary === null && other.length === 0;
  if (isEmpty && !isOwn) return null;
  return (
    <section className="card" aria-labelledby="teams">
      <header>
        <h2 id="teams">Favourite teams</h2>
      </header>
      {isEmpty && (
        <p className="empty">
          <Link href="/me/profile">Choose your teams</Link>, and we remind you of their matches.
        </p>
      )}
      {primary && (
        <p className="primary-team">
          <Crest team={primary} size={44} />
          <strong>
            <Name>{primary.name}</Name>
          </strong>
        </p>
      )}
      {other.length > 0 && (
        <ul className="other-teams" aria-label="Other teams">
          {other.map((team) => (
            <li key={team.id}>
              <Crest team={team} size={22} />
              <Name>{team.name}</Name>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
