import type { Person } from "../people/person.ts";
import { onSessionEnd } from "../session/session.ts";

/** Accounts of senders by username, as the live stream named them to a spectator. The homeserver names only chat ids. */
const senders = new Map<string, Person>();
onSessionEnd.add(() => senders.clear());

export function rememberSender(sender: Person): void {
  senders.set(sender.username, sender);
}

export const knownSender = (username: string): Person | undefined => senders.get(username);
