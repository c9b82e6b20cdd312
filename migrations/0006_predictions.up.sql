-- Predictions of matches by users.

-- No foreign keys. Each would lock the referenced row for every prediction: all predictions of a match would lock the
-- same row, and each would rewrite its user's row. The writing statement looks up the match under its gate (see
-- `predictions/store.rs`), and matches are not deleted. The user was just found by the token, and users are not deleted
-- either.
--
-- Partitioned by ranges of match ids: the predictions of a match are stored together, and those of past seasons can be
-- archived. `add_event_partitions` creates the partitions. There is no default partition, because adding a partition
-- would then scan and lock it.
create table predictions (
    user_id    bigint      not null,
    event_id   bigint      not null,
    -- Unchanged when the prediction is replaced.
    id         bigint      not null generated always as identity (cache 100),
    -- Predicted outcome.
    prediction text        not null,
    -- Predicted score, if given.
    home_goals smallint,
    away_goals smallint,
    -- Confidence of the user, in percent.
    confidence smallint    not null,
    -- Team that advances in a knockout match, if given: `home` or `away`.
    advances   text,
    -- Whether the user plays a joker, which doubles the points.
    joker      boolean     not null default false,
    -- 1 for the first submission, incremented by each replacement.
    revision   integer     not null,
    -- Times of the first and last revision, by the same clock that decides whether the match is open.
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (user_id, event_id),
    constraint predictions_prediction check (prediction in ('home', 'draw', 'away')),
    constraint predictions_goals check (home_goals between 0 and 999 and away_goals between 0 and 999),
    constraint predictions_score check ((home_goals is null) = (away_goals is null)),
    constraint predictions_agree check (home_goals is null or prediction =
        case when home_goals > away_goals then 'home' when home_goals < away_goals then 'away' else 'draw' end),
    constraint predictions_confidence check (confidence between 0 and 100),
    constraint predictions_advances check (advances in ('home', 'away'))
) partition by range (event_id);
comment on table predictions is 'user: predictions, at most one per user and match';
-- For reading the predictions of a match, in pages for lists and in chunks for scores.
create index predictions_by_event on predictions (event_id, user_id);

create table prediction_revisions (
    user_id    bigint      not null,
    event_id   bigint      not null,
    revision   integer     not null,
    prediction text        not null,
    home_goals smallint,
    away_goals smallint,
    confidence smallint    not null,
    advances   text,
    joker      boolean     not null default false,
    made_at    timestamptz not null,
    -- Time of the next revision. This one counted after `made_at`, up to and including this time.
    replaced_at timestamptz not null,
    primary key (user_id, event_id, revision)
) partition by range (event_id);
comment on table prediction_revisions is 'user: earlier revisions of replaced predictions';

-- First match ids of the attached partitions. A partition has 1,000 ids and is named after the first one:
-- `predictions_2000` has the predictions of matches 2000 to 2999.
create function event_partitions() returns setof bigint
    language plpgsql stable as $$
begin
    return query
        select substring(c.relname from '[0-9]+$')::bigint
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'predictions'::regclass;
end
$$;

-- Partitions that are needed and do not exist: those of matches, that of the next match, and a spare one. A gap in the
-- ids of matches needs no partitions. Neither do the ids before the last partition: theirs exist or were archived.
create function missing_event_partitions() returns setof bigint
    language plpgsql stable as $$
declare
    existing bigint[] := array(select event_partitions());
    last_partition bigint := (select coalesce(max(first_id), 0) from unnest(existing) p (first_id));
    next_event bigint := (select coalesce(max(id), 0) + 1 from events);
    needed bigint[] := array(select distinct id - id % 1000 from events where id >= last_partition);
begin
    needed := needed || array[next_event - next_event % 1000, next_event - next_event % 1000 + 1000];
    return query select unnest(needed) except select unnest(existing) order by 1;
end
$$;

-- Creates the missing partitions, and returns how many. It runs with the rights of the owner, because the role of the
-- service cannot create tables. A table that is created and then attached does not wait for statements that read or
-- write predictions, and they do not wait for it.
create function add_event_partitions() returns integer
    language plpgsql security definer
    set search_path = public, pg_temp
    set lock_timeout = '5s'
as $$
declare
    first_id bigint;
    parent text;
    added integer := 0;
begin
    if not exists (select 1 from missing_event_partitions()) then
        return 0;
    end if;
    -- Only one transaction adds partitions at a time; the next one finds those of the first.
    lock table predictions in share update exclusive mode;
    foreach first_id in array array(select missing_event_partitions()) loop
        foreach parent in array array['predictions', 'prediction_revisions'] loop
            -- The fill factor leaves room for replaced predictions. The other settings let autovacuum follow a burst, so
            -- that counting the predictions of a match reads only the index.
            execute format(
                'create table %I (like %I including defaults including constraints) with (fillfactor = 90,'
                ' autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05)',
                parent || '_' || first_id, parent);
            execute format(
                'alter table %I attach partition %I for values from (%s) to (%s)',
                parent, parent || '_' || first_id, first_id, first_id + 1000);
        end loop;
        added := added + 1;
    end loop;
    return added;
end
$$;
revoke execute on function add_event_partitions from public;
grant execute on function add_event_partitions to matchday_app;
select add_event_partitions();

create table event_tallies (
    event_id   bigint   not null references events,
    -- Each batch writer has a separate slot; reads add them up.
    slot       smallint not null,
    -- Number of predictions by outcome. It can be negative in a slot, if another writer replaced a prediction.
    home       bigint   not null,
    draw       bigint   not null,
    away       bigint   not null,
    -- Sum of their confidence, in percent.
    confidence bigint   not null,
    primary key (event_id, slot)
    -- Every batch of predictions updates a row.
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
comment on table event_tallies is 'tally: number of predictions of a match, by outcome';

-- Whether a match accepts predictions at the given time.
create function accepts_predictions(status text, start_time timestamptz, moment timestamptz) returns boolean
    language sql immutable parallel safe
    return status = 'scheduled' and start_time > moment;

-- Whether the rules of a sport and match allow a prediction. `check_forecast` in `predictions/rules.rs` names the rule
-- that does not.
create function allows_prediction(
    draws_allowed boolean, max_score smallint, is_knockout boolean,
    prediction text, home_goals smallint, away_goals smallint, advances text
) returns boolean
    language sql immutable parallel safe
    return (draws_allowed or prediction <> 'draw')
        and (home_goals is null or (home_goals <= max_score and away_goals <= max_score))
        and (advances is null or (is_knockout and (draws_allowed or advances = prediction)));

-- Those of these matches that accept predictions now, with the rules for predictions, and the time that decided it.
-- Called behind the gates of the matches. A function, because on Citus a query of `events` may run on another node, with
-- another clock.
create function open_matches(ids bigint[]) returns table (
    id bigint, moment timestamptz, tournament_id bigint, draws_allowed boolean, max_score smallint, is_knockout boolean,
    jokers integer
)
    language plpgsql as $$
#variable_conflict use_column
begin
    moment := clock_timestamp();
    return query
        select e.id, open_matches.moment, e.tournament_id, s.draws_allowed, s.max_score, e.is_knockout, r.jokers
        from events e
        join tournaments t on t.id = e.tournament_id
        join sports s on s.id = t.sport_id
        join rule_sets r on r.id = e.rule_set_id
        where e.id = any(open_matches.ids) and accepts_predictions(e.status, e.start_time, open_matches.moment);
end $$;

-- Inserts a single first prediction in one statement, with the same result as the batch in `predictions/store.rs`,
-- which would need four round trips. Returns no row if the user has a prediction of the match already, if the match
-- is not open, if the match or its sport does not allow the prediction, or if the request's idempotency key was used
-- before. A request without a key has nulls for its digests. Predictions with a joker are not written by this function.
create function insert_alone(
    gate_class integer, gate integer, slot smallint,
    user_id bigint, event_id bigint, prediction text, home_goals smallint, away_goals smallint, confidence smallint,
    advances text, key_digest bytea, request_digest bytea, requested_at timestamptz
) returns table (id bigint, created_at timestamptz)
    language plpgsql as $$
#variable_conflict use_column
declare
    now timestamptz;
begin
    if insert_alone.key_digest is not null and exists (
        select 1 from idempotency_keys k
        where k.user_id = insert_alone.user_id and k.key_digest = insert_alone.key_digest
    ) then
        return;
    end if;
    perform pg_advisory_xact_lock_shared(gate_class, gate);
    now := clock_timestamp();
    if not exists (
        select 1 from events e join tournaments t on t.id = e.tournament_id join sports s on s.id = t.sport_id
        where e.id = insert_alone.event_id and accepts_predictions(e.status, e.start_time, now)
          and allows_prediction(s.draws_allowed, s.max_score, e.is_knockout, insert_alone.prediction,
                                insert_alone.home_goals, insert_alone.away_goals, insert_alone.advances)
    ) then
        return;
    end if;
    return query
        insert into predictions as p
            (user_id, event_id, prediction, home_goals, away_goals, confidence, advances, revision, created_at, updated_at)
        values (insert_alone.user_id, insert_alone.event_id, insert_alone.prediction, insert_alone.home_goals,
                insert_alone.away_goals, insert_alone.confidence, insert_alone.advances, 1, now, now)
        on conflict (user_id, event_id) do nothing
        returning p.id, p.created_at;
    if found then
        if insert_alone.key_digest is not null then
            insert into idempotency_keys (user_id, key_digest, request_digest, status, created_at)
            values (insert_alone.user_id, insert_alone.key_digest, insert_alone.request_digest, 201,
                    insert_alone.requested_at);
        end if;
        insert into event_tallies as t (event_id, slot, home, draw, away, confidence)
        values (insert_alone.event_id, insert_alone.slot, (insert_alone.prediction = 'home')::integer,
                (insert_alone.prediction = 'draw')::integer, (insert_alone.prediction = 'away')::integer,
                insert_alone.confidence)
        on conflict (event_id, slot) do update
            set home = t.home + excluded.home, draw = t.draw + excluded.draw, away = t.away + excluded.away,
                confidence = t.confidence + excluded.confidence;
    end if;
end $$;

-- Outcome of a score.
create function pick_of(home integer, away integer) returns text
    language sql immutable parallel safe
    return case when home > away then 'home' when home < away then 'away' else 'draw' end;

-- Values of a rule set that points depend on.
create type point_rules as (
    outcome integer, difference integer, exact integer, margin_within integer, margin_points integer, stake integer,
    advances integer
);

-- Content of a prediction, with the types of its columns.
create type forecast as (
    pick text, home_goals smallint, away_goals smallint, confidence smallint, advances text, joker boolean
);

-- Result of a match, with the details of the match that points depend on. The scores are null without a result.
create type match_result as (home integer, away integer, advanced text, is_knockout boolean, multiplier smallint);

-- Points of a prediction before multiplier and joker.
create function points_sum(rules point_rules, forecast forecast, result match_result) returns integer
    language sql immutable parallel safe
    return case
        when forecast.pick <> pick_of(result.home, result.away)
            then -((rules.stake * forecast.confidence * forecast.confidence + 5000) / 10000)
        else (rules.stake * (200 * forecast.confidence - forecast.confidence * forecast.confidence) + 5000) / 10000
             + case when forecast.home_goals = result.home and forecast.away_goals = result.away then rules.exact
                    when forecast.home_goals is null or result.home = result.away then rules.outcome
                    when forecast.home_goals - forecast.away_goals = result.home - result.away
                        then greatest(rules.difference, rules.margin_points)
                    when abs(forecast.home_goals - forecast.away_goals - result.home + result.away) <= rules.margin_within
                        then rules.margin_points
                    else rules.outcome end
    end
    + case when result.is_knockout and forecast.advances = result.advanced then rules.advances else 0 end;

-- Points of a prediction; null without a result. It must compute the same as `Forecast::points` in `crates/scoring`,
-- where the rules are explained. The planner inlines it, and reads the fields of `row(…)::forecast` without building
-- the row. The expression after `else` is half of a product, with halves rounded away from zero; most matches do not
-- need it.
create function prediction_points(rules point_rules, forecast forecast, result match_result) returns integer
    language sql immutable parallel safe
    return case
        when result.home is null or result.away is null then null
        when result.multiplier = 2 and not forecast.joker then points_sum(rules, forecast, result)
        else points_sum(rules, forecast, result) * result.multiplier * case when forecast.joker then 2 else 1 end
             - points_sum(rules, forecast, result) * result.multiplier * case when forecast.joker then 2 else 1 end / 2
    end;
