-- Reads a page of the event list. $1 to $5 are the runs of `rules::runs`: matches of one status in one period, adjacent
-- in the list. Each run is read from an index in list order, only as far as the page reaches ($10). Only these rows are
-- sorted, so the cost depends on the page and not on the number of matches. The joins follow after the page is cut.
select e.id as "id: MatchId", e.start_time, e.venue, e.status, e.home_score, e.away_score,
       e.rule_set_id as "rule_set_id: RuleSetId", e.round, e.stage, e.multiplier, e.is_knockout, e.advanced,
       t.id as "tournament_id: TournamentId", t.name as tournament_name, t.logo as tournament_logo,
       h.id as "home_id: TeamId", h.name as home_name, h.logo as home_logo,
       a.id as "away_id: TeamId", a.name as away_name, a.logo as away_logo,
       coalesce((select sum(home + draw + away) from event_tallies where event_id = e.id), 0)::bigint as "predictions_count!",
       r.matrix_id as "chat_room_id?"
from (
    select listed.section, listed.earliest, listed.latest, listed.id
    from (
        select run.section, m.start_time as earliest, null::timestamptz as latest, m.id
        from unnest($1::smallint[], $2::boolean[], $3::text[], $4::timestamptz[], $5::timestamptz[])
             as run (section, is_ascending, status, since, until)
        cross join lateral (
            select id, start_time from events
            where status = run.status and start_time >= run.since
              and ($6::bigint is null or tournament_id = $6)
              and ($7::bigint is null or home_team_id = $7 or away_team_id = $7)
            order by start_time, id
            limit $10
        ) m
        where run.is_ascending and m.start_time < run.until
        union all
        select run.section, null, m.start_time, m.id
        from unnest($1::smallint[], $2::boolean[], $3::text[], $4::timestamptz[], $5::timestamptz[])
             as run (section, is_ascending, status, since, until)
        cross join lateral (
            select id, start_time from events
            where status = run.status and start_time < run.until
              and ($6::bigint is null or tournament_id = $6)
              and ($7::bigint is null or home_team_id = $7 or away_team_id = $7)
            order by start_time desc, id
            limit $10
        ) m
        where not run.is_ascending and m.start_time >= run.since
    ) listed
    order by section, earliest, latest desc, id
    limit $8 offset $9
) page
join events e on e.id = page.id
join tournaments t on t.id = e.tournament_id
join teams h on h.id = e.home_team_id
join teams a on a.id = e.away_team_id
left join rooms r on r.event_id = e.id and r.stand = 1 and r.opened_at is not null
order by page.section, page.earliest, page.latest desc, page.id
