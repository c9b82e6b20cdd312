import { useEffect, useRef } from "react";
import { matchday } from "../session/session.ts";
import { allPages } from "../ui/pages.ts";
import { useResource } from "../ui/resource.ts";
import { dayOf, shortDay } from "../ui/time.ts";
import type { Filter } from "./match-list.ts";
import { useTournaments } from "./tournaments.ts";

type Named = { id: number; name: string };

/** Filters by tournament and team. */
export function Filters({ filter, choose }: { filter: Filter; choose: (filter: Filter) => void }) {
  const tournaments = useTournaments();
  const teams = useResource(
    (signal) =>
      allPages((page) => matchday.get("/api/auth/teams", { params: { query: { page, per_page: 100 } }, signal })),
    [],
    "teams",
  );
  const { tournament_id, team_id } = filter;
  return (
    <div className="filters">
      <FilterSelect
        name="Tournament"
        everything="All tournaments"
        options={tournaments.data}
        value={tournament_id}
        choose={(id) => choose({ ...(team_id && { team_id }), ...(id && { tournament_id: id }) })}
      />
      <FilterSelect
        name="Team"
        everything="All teams"
        options={teams.data}
        value={team_id}
        choose={(id) => choose({ ...(tournament_id && { tournament_id }), ...(id && { team_id: id }) })}
      />
    </div>
  );
}

function FilterSelect(props: {
  name: string;
  everything: string;
  options: Named[] | undefined;
  value: number | undefined;
  choose: (id: number | undefined) => void;
}) {
  const { name, everything, options, value, choose } = props;
  return (
    <label>
      <span className="unseen">{name}</span>
      <select
        className={`select${value ? " chosen" : ""}`}
        value={options ? (value ?? "") : ""}
        disabled={!options}
        onChange={({ target }) => choose(target.value ? Number(target.value) : undefined)}
      >
        <option value="">{everything}</option>
        {options?.map(({ id, name }) => (
          <option key={id} value={id} dir="auto">
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

const [past, future] = [7, 21];

/** Days around today, with a date field for any other day. */
export function DateStrip({ day, choose }: { day: string | undefined; choose: (day: string | undefined) => void }) {
  const strip = useRef<HTMLFieldSetElement>(null);
  const today = dayOf(new Date());
  const days = daysAround(new Date(), day);
  // biome-ignore lint/correctness/useExhaustiveDependencies: scrolls the selected day into view
  useEffect(() => {
    const row = strip.current;
    const chosen = row?.querySelector<HTMLElement>("[aria-pressed=true]:not(.any-day)");
    const target = chosen ?? row?.querySelector<HTMLElement>(".today");
    if (row && target) row.scrollLeft = target.offsetLeft - (chosen ? (row.clientWidth - target.offsetWidth) / 2 : 8);
  }, [day]);
  return (
    <div className="dates">
      <button type="button" className="any-day" aria-pressed={day === undefined} onClick={() => choose(undefined)}>
        All
        <br />
        days
      </button>
      <fieldset ref={strip} className="date-strip">
        <legend className="unseen">Day</legend>
        {days.map((one) => {
          const { weekday, date, month } = shortDay(one);
          return (
            <button
              key={one}
              type="button"
              className={one === today ? "today" : undefined}
              aria-pressed={one === day}
              onClick={() => choose(one === day ? undefined : one)}
            >
              <span>{one === today ? "Today" : weekday}</span> <strong className="numbers">{date}</strong>{" "}
              <span>{month}</span>
            </button>
          );
        })}
      </fieldset>
      <label className="any-date">
        <span className="unseen">Another day</span>
        <svg viewBox="0 0 24 24" aria-hidden="true" focusable="false">
          <path d="M5 6.5h14v13H5zM5 10.5h14M9 4v4M15 4v4" />
        </svg>
        <input
          type="date"
          value={day ?? ""}
          onChange={({ target }) => choose(target.value || undefined)}
          onClick={({ currentTarget }) => currentTarget.showPicker?.()}
        />
      </label>
    </div>
  );
}

function daysAround(now: Date, chosen: string | undefined): string[] {
  const days = Array.from({ length: past + 1 + future }, (_, index) => {
    const date = new Date(now.getFullYear(), now.getMonth(), now.getDate() + index - past);
    return dayOf(date);
  });
  if (chosen !== undefined && !days.includes(chosen)) days.push(chosen);
  return days.sort();
}
