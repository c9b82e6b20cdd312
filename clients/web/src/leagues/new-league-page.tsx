import { MatchdayError, type Schemas } from "@matchday/client";
import { type FormEvent, useRef, useState } from "react";
import { useLocation } from "wouter";
import { matchday } from "../session/session.ts";
import { useRounds } from "../table/use-rounds.ts";
import { Back } from "../ui/back.tsx";
import { Page } from "../ui/page.tsx";
import { notifyTabs } from "../ui/refresh.ts";
import { errorMessage, Loaded } from "../ui/states.tsx";
import { dateAndTime } from "../ui/time.ts";
import "./leagues.css";
import { sizeFault } from "./size.ts";
import { type Playable, usePlayableTournaments } from "./tournaments.ts";

/** Number of tournaments that are shown at first. */
const fewTournaments = 5;

/** Form for a new league. The fan only has to enter a name. */
export function NewLeaguePage() {
  const tournaments = usePlayableTournaments();
  return (
    <Page title="Create a league" className="new-league" before={<Back to="/leagues">Leagues</Back>}>
      <Loaded resource={tournaments}>
        {(tournaments) =>
          tournaments.length === 0 ? (
            <p className="card empty">
              There are no matches yet. You can create a league once the first ones are known.
            </p>
          ) : (
            <NewLeague tournaments={tournaments} />
          )
        }
      </Loaded>
    </Page>
  );
}

function NewLeague({ tournaments }: { tournaments: Playable[] }) {
  const [name, setName] = useState("");
  const [chosen, setChosen] = useState(() => tournaments.slice(0, 1).map(({ id }) => id));
  const [visibility, setVisibility] = useState<Schemas["LeagueVisibility"]>("private");
  const [countsFrom, setCountsFrom] = useState<Schemas["LeagueCountsFrom"]>("league_start");
  const [fromRound, setFromRound] = useState<number>();
  const [size, setSize] = useState("100");
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const [, navigate] = useLocation();
  const more = useRef<HTMLDetailsElement>(null);
  const rounds = useRounds(chosen) ?? [];
  const faults = error instanceof MatchdayError ? error.errors : {};
  const hasFieldFault = ["name", "tournament_ids", "from_round", "max_members"].some((field) => faults[field]);

  async function submit(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      const isRound = rounds.some(({ round }) => round === fromRound);
      const { data } = await matchday.post("/api/auth/leagues", {
        body: {
          name: name.trim(),
          tournament_ids: chosen,
          visibility,
          counts_from: countsFrom,
          max_members: Number(size),
          ...(isRound && { from_round: fromRound ?? null }),
        },
      });
      notifyTabs();
      navigate(`/leagues/${data.id}`, { replace: true });
    } catch (error) {
      setError(error);
      setBusy(false);
      if (error instanceof MatchdayError && (error.errors.max_members || error.errors.from_round) && more.current) {
        more.current.open = true;
      }
    }
  }
  return (
    <form className="card stack new-league-form" onSubmit={submit} noValidate>
      <div className="field">
        <label htmlFor="league-name">Name</label>
        <input
          id="league-name"
          dir="auto"
          autoComplete="off"
          maxLength={100}
          placeholder="Office league"
          value={name}
          onChange={(event) => setName(event.target.value)}
          aria-invalid={faults.name !== undefined}
          aria-describedby={faults.name ? "league-name-fault" : undefined}
        />
        <Fault id="league-name-fault" text={faults.name?.[0]} />
      </div>
      <Tournaments all={tournaments} chosen={chosen} choose={setChosen} fault={faults.tournament_ids?.[0]} />
      <fieldset className="options">
        <legend>Who can join?</legend>
        <Option
          name="visibility"
          checked={visibility === "private"}
          choose={() => setVisibility("private")}
          title="Private"
          text="Only fans with your link or code"
        />
        <Option
          name="visibility"
          checked={visibility === "public"}
          choose={() => setVisibility("public")}
          title="Public"
          text="Every fan can find and join it"
        />
      </fieldset>
      <details ref={more} className="more-options">
        <summary>More options</summary>
        <div className="stack">
          {rounds.length > 0 && (
            <div className="field">
              <label htmlFor="from-round">First round</label>
              <select
                id="from-round"
                className="select"
                value={fromRound ?? ""}
                onChange={({ target }) => setFromRound(target.value ? Number(target.value) : undefined)}
              >
                <option value="">Count all matches</option>
                {rounds.map(({ round, name }) => (
                  <option key={round} value={round}>
                    Start with {name.replace(/^R/, "r")}
                  </option>
                ))}
              </select>
              <Fault id="from-round-fault" text={faults.from_round?.[0]} />
            </div>
          )}
          <fieldset className="options">
            <legend>Members who join later</legend>
            <Option
              name="counts-from"
              checked={countsFrom === "league_start"}
              choose={() => setCountsFrom("league_start")}
              title="Keep their points"
              text="Their earlier predictions count too"
            />
            <Option
              name="counts-from"
              checked={countsFrom === "joined"}
              choose={() => setCountsFrom("joined")}
              title="Start at zero"
              text="Only matches after they joined count"
            />
          </fieldset>
          <div className="field">
            <label htmlFor="league-size">Maximum number of members</label>
            <input
              id="league-size"
              className="numbers"
              type="number"
              inputMode="numeric"
              min={2}
              value={size}
              onChange={(event) => setSize(event.target.value)}
              aria-invalid={faults.max_members !== undefined}
              aria-describedby={faults.max_members ? "league-size-fault" : undefined}
            />
            <Fault id="league-size-fault" text={sizeFault(faults.max_members)} />
          </div>
        </div>
      </details>
      {error !== undefined && !hasFieldFault && (
        <p className="notice" role="alert">
          {errorMessage(error, {
            too_many_leagues: "You're in as many leagues as possible. Leave one of them to create another.",
          })}
        </p>
      )}
      <button type="submit" className="button wide" disabled={isBusy || name.trim() === "" || chosen.length === 0}>
        {isBusy ? "Creating…" : "Create league"}
      </button>
    </form>
  );
}

interface TournamentsProps {
  all: Playable[];
  chosen: number[];
  choose: (ids: number[]) => void;
  fault: string | undefined;
}

function Tournaments({ all, chosen, choose, fault }: TournamentsProps) {
  const [isOpen, setOpen] = useState(false);
  const shown = isOpen || all.length <= fewTournaments + 1 ? all : all.slice(0, fewTournaments);
  const help = fault ?? (chosen.length === 0 ? "Choose at least one tournament." : undefined);
  return (
    <fieldset className="options" aria-describedby={help ? "tournaments-fault" : undefined}>
      <legend>Which matches count?</legend>
      {shown.map(({ id, name, next }) => (
        <Option
          key={id}
          type="checkbox"
          name="tournament"
          checked={chosen.includes(id)}
          choose={(isChosen) => choose(isChosen ? [...chosen, id] : chosen.filter((other) => other !== id))}
          title={name}
          text={stateOf(next)}
        />
      ))}
      {shown.length < all.length && (
        <button type="button" className="button quiet low" onClick={() => setOpen(true)}>
          Show all {all.length} tournaments
        </button>
      )}
      <Fault id="tournaments-fault" text={help} />
    </fieldset>
  );
}

function stateOf(next: string | undefined): string {
  if (next === undefined) return "All matches are over";
  return Date.parse(next) > Date.now() ? `Next match: ${dateAndTime(next)}` : "Matches in progress";
}

interface OptionProps {
  type?: "radio" | "checkbox";
  name: string;
  checked: boolean;
  choose: (isChosen: boolean) => void;
  title: string;
  text: string;
}

function Option({ type = "radio", name, checked, choose, title, text }: OptionProps) {
  return (
    <label className="option">
      <input type={type} name={name} checked={checked} onChange={({ target }) => choose(target.checked)} />
      <span>
        <bdi dir="auto">{title}</bdi>
        <span className="small soft">{text}</span>
      </span>
    </label>
  );
}

function Fault({ id, text }: { id: string; text: string | undefined }) {
  return text === undefined ? null : (
    <p id={id} className="fault" role="alert">
      {text}
    </p>
  );
}
