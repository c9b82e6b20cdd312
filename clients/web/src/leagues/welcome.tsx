import { Name } from "../ui/name.tsx";
import { toast } from "../ui/toasts.tsx";
import type { Joined } from "./join.ts";

/** Names the league that the fan joined. A private league is not known before. */
export function welcome({ league, isNew }: Joined): void {
  const name = <Name>{league.name}</Name>;
  toast(`league ${league.id}`, isNew ? <>You joined {name}.</> : <>You're already a member of {name}.</>);
}
