import type { Schemas } from "@matchday/client";
import { useEffect, useRef } from "react";
import { useLive } from "../live/live.tsx";
import { matchday } from "../session/session.ts";
import { type Resource, useResource } from "../ui/resource.ts";
import type { Question } from "./answer.ts";

const perPage = 50;
/** Shortest and longest pause in milliseconds before a reload. Random, so that the fans of a match do not all reload at once. */
const [shortest, longest] = [1_000, 4_000];
/** Locks that are further away are not awaited: a timer has a limit, and the fan will return to the page before. */
const farAway = 86_400_000;

/** Milliseconds until the state of a question that is past its lock is requested again. */
const late = 30_000;

export interface Questions {
  questions: Question[];
  total: number;
}

interface Query {
  tournament_id?: number;
  event_id?: number;
}

/** Questions, open ones first. Reloads them when one locks, and when the state of their match changes. */
export function useQuestions(query: Query, pages = 1): Resource<Questions> {
  const resource = useResource<Questions>(
    async (signal) => {
      const load = (page: number) =>
        matchday.get("/api/auth/questions", { params: { query: { ...query, page, per_page: perPage } }, signal });
      const loaded = await Promise.all(Array.from({ length: pages }, (_, index) => load(index + 1)));
      // A question that is added between two requests moves the others to the next page.
      const questions = new Map(loaded.flatMap(({ data }) => data.map((question) => [question.id, question])));
      return { questions: [...questions.values()], total: loaded[0]?.meta.total ?? 0 };
    },
    [query, pages],
    "questions",
  );
  useChanges(resource);
  return resource;
}

function useChanges({ data, reload }: Resource<Questions>): void {
  useEffect(() => {
    const open = data?.questions.filter(({ status }) => status === "open") ?? [];
    const rest = Math.min(...open.map(({ locks_at }) => Date.parse(locks_at))) - Date.now();
    if (rest > farAway) return;
    // A question that should have locked is still open if the clock of the device is fast.
    const timer = setTimeout(reload, (rest > 0 ? rest : late) + pause());
    return () => clearTimeout(timer);
  }, [data, reload]);

  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  useLive((event) => {
    const isAbout = (match: number) => data?.questions.some(({ event_id }) => event_id === match);
    const isChanged =
      event.kind === "reset" ||
      (event.kind === "event" && event.data.changed.some((what) => what !== "score") && isAbout(event.data.event_id)) ||
      (event.kind === "result" && isAbout(event.data.event_id));
    if (!isChanged) return;
    clearTimeout(timer.current);
    timer.current = setTimeout(reload, pause());
  });
}

const pause = () => shortest + Math.random() * (longest - shortest);

/** The list with the fan's new answer to a question. */
export function withAnswer(all: Questions, own: Schemas["OwnAnswer"]): Questions {
  const change = (question: Question) =>
    question.id === own.question_id
      ? { ...question, my_answer: own, answers_count: question.answers_count + (question.my_answer ? 0 : 1) }
      : question;
  return { ...all, questions: all.questions.map(change) };
}
