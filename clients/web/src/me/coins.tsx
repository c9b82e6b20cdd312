import { MatchdayError, type Schemas } from "@matchday/client";
import { useState } from "react";
import { signed } from "../matches/labels.ts";
import { matchday, useMe } from "../session/session.ts";
import { notifyTabs } from "../ui/refresh.ts";
import { useResource } from "../ui/resource.ts";
import { errorMessage, Loaded } from "../ui/states.tsx";
import { dateAndTime, nameOfDay, timeOfDay } from "../ui/time.ts";

/** Coin balance, streak, daily bonus and recent transactions. */
export function Coins() {
  const resource = useResource(
    (signal) => matchday.get("/api/auth/coins", { params: { query: { per_page: 5 } }, signal }),
    [],
  );
  return (
    <section className="card" aria-labelledby="coins">
      <header>
        <h2 id="coins">Coins</h2>
        {resource.data && (
          <strong className="balance numbers" data-testid="balance">
            <i className="coin" aria-hidden="true" /> {resource.data.data.balance.toLocaleString("en")}
          </strong>
        )}
      </header>
      <Loaded resource={resource}>
        {({ data: { streak, history } }) => (
          <div className="stack">
            <Streak streak={streak} />
            <Claim streak={streak} claimed={resource.reload} />
            <History history={history} />
          </div>
        )}
      </Loaded>
    </section>
  );
}

/** Streak of up to seven days. The bonus does not grow after that. */
function Streak({ streak }: { streak: Schemas["CoinStreak"] }) {
  const shown = Math.min(7, streak.days);
  return (
    <div className="streak">
      <p>{streak.days === 0 ? "No streak yet" : `${streak.days}-day streak`}</p>
      <span className="streak-days" aria-hidden="true">
        {[1, 2, 3, 4, 5, 6, 7].map((day) => (
          <i key={day} className={day <= shown ? "done" : undefined} />
        ))}
      </span>
    </div>
  );
}

function Claim({ streak, claimed }: { streak: Schemas["CoinStreak"]; claimed: () => void }) {
  const { reload } = useMe();
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const [message, setMessage] = useState("");
  async function claim() {
    setBusy(true);
    setError(undefined);
    try {
      const { data } = await matchday.post("/api/auth/daily-coins");
      setMessage(`You got ${data.coins_awarded} coins.`);
    } catch (error) {
      // The fan has claimed on another device. The reload below shows the new state.
      if (!(error instanceof MatchdayError && error.code === "already_claimed")) setError(error);
    }
    setBusy(false);
    claimed();
    reload();
    notifyTabs();
  }
  return (
    <>
      {error !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
      <button type="button" className="button lantern wide" onClick={claim} disabled={isBusy || streak.claimed_today}>
        {streak.claimed_today
          ? `Next: ${streak.next_coins} coins, ${nameOfDay(streak.next_claim_at).toLowerCase()} ${timeOfDay(streak.next_claim_at)}`
          : isBusy
            ? "Claiming…"
            : `Claim ${streak.next_coins} coins`}
      </button>
      <p role="status" className={message ? "saved" : "unseen"}>
        {message}
      </p>
    </>
  );
}

const kinds: Record<Schemas["CoinTransactionKind"], string> = {
  welcome: "Welcome bonus",
  daily: "Daily bonus",
  deduction: "Spent",
  grant: "Gift",
  reversal: "Reversal",
  points: "Points reward",
};

function History({ history }: { history: Schemas["CoinTransaction"][] }) {
  if (history.length === 0) return null;
  return (
    <ul className="coin-history numbers" aria-label="Recent transactions">
      {history.map(({ transaction_id, kind, amount, reason, created_at }) => (
        <li key={transaction_id}>
          <span dir="auto">{kinds[kind] + (reason ? `: ${reason}` : "")}</span>
          <span className="small soft">{dateAndTime(created_at)}</span>
          <strong>{signed(amount)}</strong>
        </li>
      ))}
    </ul>
  );
}
