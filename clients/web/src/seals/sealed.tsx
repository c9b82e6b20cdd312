import type { Schemas } from "@matchday/client";
import { type ReactNode, useRef, useState } from "react";
import { counted, formatNumber } from "../matches/labels.ts";
import { PickExtras, PickText } from "../matches/pick.tsx";
import { matchday } from "../session/session.ts";
import { useCopy } from "../ui/copy.ts";
import { saveFile } from "../ui/save-file.ts";
import { errorMessage } from "../ui/states.tsx";
import { dateAndTime } from "../ui/time.ts";
import { lateness, type Outcome, verifyOwn } from "./outcome.ts";
import "./seals.css";

interface Props {
  match: Schemas["Event"];
  own: Schemas["ListedPrediction"];
  seal: Schemas["Seal"] | null | undefined;
}

/** When the fan's prediction was sealed, with a button that verifies it in the browser. */
export function Sealed({ match, own, seal }: Props) {
  // The key discards the outcome of an earlier seal.
  if (seal) return <SealLine key={seal.hash} match={match} own={own} seal={seal} />;
  // A match that has just started is sealed within seconds. Later, a match without a seal stays without one.
  const isStarting = match.status === "live" || match.status_detail === "scheduled";
  return seal === null && isStarting ? <p className="seal small soft">Not sealed yet</p> : null;
}

function SealLine({ match, own, seal }: Props & { seal: Schemas["Seal"] }) {
  const [isBusy, setBusy] = useState(false);
  const [outcome, setOutcome] = useState<Outcome>();
  const [error, setError] = useState<unknown>();
  async function verify() {
    if (isBusy) return;
    setBusy(true);
    setOutcome(undefined);
    setError(undefined);
    try {
      setOutcome(
        await verifyOwn(match.id, own, {
          proof: () => matchday.get("/api/auth/predictions/{id}/proof", { params: { path: { id: own.id } } }),
          seals: (after) => matchday.get("/api/seals", { params: { query: { after, per_page: 3 } } }),
          pause: (milliseconds) => new Promise((done) => setTimeout(done, milliseconds)),
        }),
      );
    } catch (error) {
      setError(error);
    }
    setBusy(false);
  }
  const late = lateness(seal);
  return (
    <div className="seal">
      <p className="small soft">
        <span>
          Sealed <time dateTime={seal.sealed_at}>{dateAndTime(seal.sealed_at)}</time>
          {late && `, ${late} after kick-off`}
        </span>
        <span aria-hidden="true">·</span>
        {/* Not disabled while it works, so that it keeps the focus. */}
        <button type="button" className="link" aria-disabled={isBusy} onClick={verify}>
          {isBusy ? "Verifying…" : outcome ? "Verify again" : "Verify"}
        </button>
      </p>
      <div role="status">{outcome && <OutcomeText outcome={outcome} match={match} />}</div>
      {error !== undefined && (
        <p className="notice" role="alert">
          {errorMessage(error)}
        </p>
      )}
      {outcome && <SealDetails seal={isValid(outcome) ? outcome.proof.seal : seal} outcome={outcome} />}
    </div>
  );
}

/** Whether the seal of the proof was verified. It can be a later one than the page has loaded. */
function isValid(outcome: Outcome): outcome is Extract<Outcome, { kind: "verified" | "flagged" | "different" }> {
  return outcome.kind === "verified" || outcome.kind === "flagged" || outcome.kind === "different";
}

function OutcomeText({ outcome, match }: { outcome: Outcome; match: Schemas["Event"] }) {
  switch (outcome.kind) {
    case "verified":
      return (
        <Result label="Verified" tone="good">
          Your prediction was saved before kick-off and hasn't changed since.
        </Result>
      );
    case "flagged":
      return outcome.isLate ? (
        <Result label="Sealed late">
          Your prediction is in the seal and hasn't changed since. The seal was made {lateness(outcome.proof.seal)}{" "}
          after kick-off, so it doesn't prove what was saved before kick-off.
        </Result>
      ) : (
        <Result label="Sealed again">
          Your prediction is in the latest seal, but the match was sealed before, or the seals have impossible dates.
          See the details.
        </Result>
      );
    case "different": {
      const { receipt } = outcome.proof;
      return (
        <Result label="Different prediction" tone="bad">
          The seal is valid, but it contains this prediction:{" "}
          <strong>
            <PickText prediction={receipt} match={match} />
            <PickExtras prediction={receipt} match={match} />
          </strong>
          . Changes after kick-off don't count. If you never made this prediction, download the proof and contact
          support.
        </Result>
      );
    }
    case "failed":
      return (
        <Result label="Not verified" tone="bad">
          The proof of your prediction doesn't match the published seals. Try again. If it still doesn't match, download
          the proof and contact support.
        </Result>
      );
    case "unsupported":
      return (
        <Result label="Can't verify here">
          Your browser can verify only on a secure page (https). You can download the proof and check it elsewhere.
        </Result>
      );
    case "not_counted":
      return <Result label="Not counted">You predicted after kick-off, so your prediction isn't in the seal.</Result>;
    case "not_sealed":
      // The match opened again after the seal.
      return (
        <Result label="Not sealed yet">
          This seal is older than your prediction. The match is sealed again when it starts.
        </Result>
      );
  }
}

function Result({ label, tone = "", children }: { label: string; tone?: "good" | "bad" | ""; children: ReactNode }) {
  return (
    <p className="seal-result">
      <span className={`tag ${tone}`}>{label}</span> {children}
    </p>
  );
}

function SealDetails({ seal, outcome }: { seal: Schemas["Seal"]; outcome: Outcome }) {
  const hash = useRef<HTMLElement>(null);
  const { message, isCopied, copy } = useCopy(seal.hash, "Hash", () => {
    if (hash.current) getSelection()?.selectAllChildren(hash.current);
  });
  return (
    <details className="seal-details">
      <summary>Details</summary>
      <dl>
        <div>
          <dt>Seal</dt>
          <dd className="numbers">
            {formatNumber(seal.sequence)}, with {counted(seal.count, "prediction")}
          </dd>
        </div>
        <div>
          <dt>Hash</dt>
          <dd>
            <code ref={hash}>{seal.hash}</code>
          </dd>
        </div>
      </dl>
      <p className="small soft">Everyone sees the same hash, for example in the match chat.</p>
      {(outcome.kind === "failed" || outcome.kind === "flagged") && (
        <div className="small">
          <p>{outcome.kind === "failed" ? "What doesn't match:" : "What was found:"}</p>
          <ul className="seal-failures">
            {outcome.details.map((detail) => (
              <li key={detail}>{detail}</li>
            ))}
          </ul>
        </div>
      )}
      <div className="seal-actions">
        <button type="button" className="button quiet low" onClick={copy}>
          {isCopied ? "Copied ✓" : "Copy hash"}
        </button>
        {"proof" in outcome && (
          <button
            type="button"
            className="button quiet low"
            onClick={() =>
              saveFile(`matchday-proof-seal-${seal.sequence}.json`, `${JSON.stringify(outcome.proof, null, 2)}\n`)
            }
          >
            Download proof
          </button>
        )}
      </div>
      <p role="status" className={message && !isCopied ? "small soft" : "unseen"}>
        {message}
      </p>
    </details>
  );
}
