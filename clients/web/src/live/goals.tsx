import type { Schemas } from "@matchday/client";
import { useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { Name } from "../ui/name.tsx";
import { useLive } from "./live.tsx";
import "./goals.css";

type Match = Schemas["StreamMatch"];
interface Announcement {
  number: number;
  title: string;
  match: Match;
}

/** Announces goals on every page, including to screen readers. */
export function Goals() {
  const [announcement, setAnnouncement] = useState<Announcement>();
  const goals = useRef(new Map<number, number>());
  useLive(({ kind, data }) => {
    if (kind !== "event") return;
    const before = goals.current.get(data.event_id);
    const now = (data.home_score ?? 0) + (data.away_score ?? 0);
    goals.current.set(data.event_id, now);
    const title = titleOf(data, before, now);
    if (title) setAnnouncement((last) => ({ number: (last?.number ?? 0) + 1, title, match: data }));
  });
  useEffect(() => {
    if (!announcement) return;
    const timer = setTimeout(() => setAnnouncement(undefined), 9000);
    return () => clearTimeout(timer);
  }, [announcement]);
  return (
    <section className="goals" role="status" aria-live="assertive" aria-label="Goals">
      {announcement && (
        <Link key={announcement.number} href={`/match/${announcement.match.event_id}`} className="goal on-pitch">
          <strong>{announcement.title}</strong>
          <span className="numbers">
            <Name>{announcement.match.home_team.name}</Name> {announcement.match.home_score}–
            {announcement.match.away_score} <Name>{announcement.match.away_team.name}</Name>
          </span>
        </Link>
      )}
    </section>
  );
}

function titleOf(match: Match, before: number | undefined, now: number): string | undefined {
  if (match.changed.includes("status")) {
    if (match.status_detail === "live") return "Kick-off";
    if (match.status_detail === "finished") return "Full time";
    return undefined;
  }
  if (!match.changed.includes("score")) return undefined;
  if (match.status === "finished" || (before !== undefined && now < before)) return "Score corrected";
  return "Goal";
}
