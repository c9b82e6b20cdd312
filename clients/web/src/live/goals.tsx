import type { Schemas } from "@matchday/client";
import { useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { Name } from "../ui/name.tsx";
import "./goals.css";
import { useLive } from "./live.tsx";
import { type Scores, titleOf } from "./title.ts";

type Match = Schemas["StreamMatch"];
interface Announcement {
  number: number;
  title: string;
  match: Match;
}

/** Announces goals on every page, including to screen readers. */
export function Goals() {
  const [announcement, setAnnouncement] = useState<Announcement>();
  const goals = useRef(new Map<number, Scores>());
  useLive(({ kind, data }) => {
    if (kind !== "event") return;
    const before = goals.current.get(data.event_id);
    goals.current.set(data.event_id, data);
    const title = titleOf(data, before);
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
