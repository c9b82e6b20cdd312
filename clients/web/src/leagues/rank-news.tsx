import { useLive } from "../live/live.tsx";
import { ordinal } from "../matches/labels.ts";
import { matchday } from "../session/session.ts";
import { Name } from "../ui/name.tsx";
import { toast } from "../ui/toasts.tsx";

/** Announces a new rank of the fan in a league, on every page. */
export function RankNews() {
  useLive(({ kind, data }) => {
    if (kind === "league.rank") announce(data.league_id, data.rank, data.previous_rank).catch(() => {});
  });
  return null;
}

async function announce(league: number, rank: number, before: number): Promise<void> {
  const { data } = await matchday.get("/api/auth/leagues/{league}", { params: { path: { league } } });
  toast(
    `league ${league}`,
    <>
      {rank !== before && (
        <span aria-hidden="true" className={rank < before ? "up" : "down"}>
          {rank < before ? "▲ " : "▼ "}
        </span>
      )}
      You are now {ordinal(rank)} in <Name>{data.name}</Name>
    </>,
    `/leagues/${league}`,
  );
}
