import type { Schemas } from "@matchday/client";
import { matchday } from "../session/session.ts";
import { allPages } from "../ui/pages.ts";
import { type Resource, useResource } from "../ui/resource.ts";

export function useTournaments(): Resource<Schemas["Tournament"][]> {
  return useResource(
    (signal) =>
      allPages((page) => matchday.get("/api/auth/tournaments", { params: { query: { page, per_page: 100 } }, signal })),
    [],
    "tournaments",
  );
}
