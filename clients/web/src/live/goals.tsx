import type { Schemas } from "@matchday/client";
import { useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { Name } from "../ui/name.tsx";
import { useLive } from "./live.tsx";
import "./goals.css";

type Match = Schemas["StreamMatch"];
interface Told {
  number: number;
  word: string;
  match: Match;
}

/** Announces goals on every page, also to screen readers. */
export function Goals() {
  const [told, setTold] = useState<Told>();
  const goals = useRef(new Map<number, number>());
  useLive(({ kind, data }) => {
    if (kind !== "event") return;
    const before = goals.current.get(data.event_id);
    const now = (data.home_score ?? 0) + (data.away_score ?? 0);
    goals.current.set(data.event_id, now);
    const word = inAWord(data, before, now);
    if (word) setTold((last) => ({ number: (last?.number ?? 0) + 1, word, match: data }));
  });
  useEffect(() => {
    if (!told) return;
    const timer = setTimeout(() => setTold(undefined), 9000);
    return () => clearTimeout(timer);
  }, [told]);
  return (
    <section className="goals" role="status" aria-live="assertive" aria-label="Goals">
      {told && (
        <Link key={told.number} href={`/match/${told.match.event_id}`} className="goal on-pitch">
          <strong>{told.word}</strong>
          <span className="numbers">
            <Name>{told.match.home_team.name}</Name> {told.match.home_score}–{told.match.away_score}{" "}
            <Name>{told.match.away_team.name}</Name>
          </span>
        </Link>
      )}
    </section>
  );
}

function inAWord(match: Match, before: number | undefined, now: number): string | undefined {
  if (match.changed.includes("status")) {
    if (match.status_detail === "live") return "Kick-off";
    if (match.status_detail === "finished") return "Full time";
    return undefined;
  }
  if (!match.changed.includes("score")) return undefined;
  if (match.status === "finished" || (before !== undefined && now < before)) return "Score corrected";
  return "Goal";
}
