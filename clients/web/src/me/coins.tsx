import { MatchdayError, type Schemas } from "@matchday/client";
import { useState } from "react";
import { signed } from "../matches/words.ts";
import { matchday, useMe } from "../session/session.ts";
import { useAnswer } from "../ui/answer.ts";
import { changed } from "../ui/refresh.ts";
import { inWords, Shown } from "../ui/states.tsx";
import { dateAndTime, nameOfDay, timeOfDay } from "../ui/time.ts";

/** The balance, the streak and the daily coins. */
export function Coins() {
  const answer = useAnswer(
    (signal) => matchday.get("/api/auth/coins", { params: { query: { per_page: 5 } }, signal }),
    [],
  );
  return (
    <section className="card" aria-labelledby="coins">
      <header>
        <h2 id="coins">Coins</h2>
        {answer.data && (
          <strong className="balance numbers" data-testid="balance">
            <i className="coin" aria-hidden="true" /> {answer.data.data.balance.toLocaleString("en")}
          </strong>
        )}
      </header>
      <Shown answer={answer}>
        {({ data: { streak, history } }) => (
          <div className="stack">
            <Streak streak={streak} />
            <Claim streak={streak} claimed={answer.reload} />
            <History history={history} />
          </div>
        )}
      </Shown>
    </section>
  );
}

/** Up to seven days of the streak; the bonus grows no further after a week. */
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
  const [word, setWord] = useState("");
  async function claim() {
    setBusy(true);
    setError(undefined);
    try {
      const { data } = await matchday.post("/api/auth/daily-coins");
      setWord(`You got ${data.coins_awarded} coins.`);
    } catch (error) {
      // Claimed on another device meanwhile: the reload below shows that.
      if (!(error instanceof MatchdayError && error.code === "already_claimed")) setError(error);
    }
    setBusy(false);
    claimed();
    reload();
    changed();
  }
  return (
    <>
      {error !== undefined && (
        <p className="notice" role="alert">
          {inWords(error)}
        </p>
      )}
      <button type="button" className="button lantern wide" onClick={claim} disabled={isBusy || streak.claimed_today}>
        {streak.claimed_today
          ? `Next: ${streak.next_coins} coins, ${nameOfDay(streak.next_claim_at).toLowerCase()} ${timeOfDay(streak.next_claim_at)}`
          : isBusy
            ? "Claiming…"
            : `Claim ${streak.next_coins} coins`}
      </button>
      <p role="status" className={word ? "saved" : "unseen"}>
        {word}
      </p>
    </>
  );
}

const kinds: Record<Schemas["CoinTransactionKind"], string> = {
  welcome: "Welcome",
  daily: "Daily coins",
  deduction: "Spent",
  grant: "Gift",
  reversal: "Reversed",
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
