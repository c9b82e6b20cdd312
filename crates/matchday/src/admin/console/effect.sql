-- Effect on points of replacing the current result of a match with a new one. $1 match, $2 the team that
-- advances by the new result, $3 the
-- current result counts predictions made before this time, $4 and $5 its score, $6 the new result counts predictions
-- made before this time, $7 and $8 its score, $9 number of users to list. The view `result_points` explains which
-- content of a prediction counts at a time.
with terms as (
    select s.outcome, s.difference, s.exact, s.margin_within, s.margin_points, s.stake, s.advances as rule_advances,
           e.is_knockout, e.multiplier, r.advanced as had_advanced, coalesce(r.is_knockout, false) as was_knockout,
           coalesce(r.multiplier, 2::smallint) as had_multiplier
    from events e join rule_sets s on s.id = e.rule_set_id
    left join event_results r on r.event_id = e.id and r.revision = e.result_revision
    where e.id = $1
), judged as materialized (
    select coalesce(b.user_id, a.user_id) as user_id,
           coalesce(prediction_points(
               row(t.outcome, t.difference, t.exact, t.margin_within, t.margin_points, t.stake, t.rule_advances)::point_rules,
               row(b.prediction, b.home_goals, b.away_goals, b.confidence, b.advances, b.joker)::forecast,
               row($4::integer, $5::integer, t.had_advanced, t.was_knockout, t.had_multiplier)::match_result), 0) as before,
           coalesce(prediction_points(
               row(t.outcome, t.difference, t.exact, t.margin_within, t.margin_points, t.stake, t.rule_advances)::point_rules,
               row(a.prediction, a.home_goals, a.away_goals, a.confidence, a.advances, a.joker)::forecast,
               row($7::integer, $8::integer, $2::text, t.is_knockout, t.multiplier)::match_result), 0) as after,
           case when b.home_goals = $4 and b.away_goals = $5 then 1 else 0 end as exact_before,
           case when a.home_goals = $7 and a.away_goals = $8 then 1 else 0 end as exact_after,
           case when b.prediction = pick_of($4, $5) then 1 else 0 end as correct_before,
           case when a.prediction = pick_of($7, $8) then 1 else 0 end as correct_after
    from (
        select p.user_id, case when l.revision is null then p.prediction else l.prediction end as prediction,
               case when l.revision is null then p.home_goals else l.home_goals end as home_goals,
               case when l.revision is null then p.away_goals else l.away_goals end as away_goals,
               case when l.revision is null then p.confidence else l.confidence end as confidence,
               case when l.revision is null then p.advances else l.advances end as advances,
               case when l.revision is null then p.joker else l.joker end as joker
        from predictions p
        left join prediction_revisions l
          on l.user_id = p.user_id and l.event_id = $1 and l.event_id = case when p.updated_at >= $3 then p.event_id end
         and l.made_at < $3 and l.replaced_at >= $3
        where p.event_id = $1 and (p.updated_at < $3 or l.revision is not null)
    ) b
    full join (
        select p.user_id, case when l.revision is null then p.prediction else l.prediction end as prediction,
               case when l.revision is null then p.home_goals else l.home_goals end as home_goals,
               case when l.revision is null then p.away_goals else l.away_goals end as away_goals,
               case when l.revision is null then p.confidence else l.confidence end as confidence,
               case when l.revision is null then p.advances else l.advances end as advances,
               case when l.revision is null then p.joker else l.joker end as joker
        from predictions p
        left join prediction_revisions l
          on l.user_id = p.user_id and l.event_id = $1 and l.event_id = case when p.updated_at >= $6 then p.event_id end
         and l.made_at < $6 and l.replaced_at >= $6
        where p.event_id = $1 and (p.updated_at < $6 or l.revision is not null)
    ) a on a.user_id = b.user_id
    cross join terms t
)
select 0 as "kind!", null::bigint as "user_id: UserId", null::text as username,
       coalesce(sum(before), 0)::bigint as "before!", coalesce(sum(after), 0)::bigint as "after!", count(*) as "users!",
       count(*) filter (where after > before) as "gaining!", count(*) filter (where after < before) as "losing!",
       coalesce(sum(exact_before), 0)::bigint as "exact_before!", coalesce(sum(exact_after), 0)::bigint as "exact_after!",
       coalesce(sum(correct_before), 0)::bigint as "correct_before!",
       coalesce(sum(correct_after), 0)::bigint as "correct_after!",
       coalesce(sum(greatest(after, 0) - greatest(before, 0)), 0)::bigint as "worth!"
from judged
union all
select 1, m.user_id, u.username, m.before, m.after, 0, 0, 0, 0, 0, 0, 0, 0
from (select * from judged where after > before order by after - before desc, user_id limit $9) m
join users u on u.user_id = m.user_id
union all
select 2, m.user_id, u.username, m.before, m.after, 0, 0, 0, 0, 0, 0, 0, 0
from (select * from judged where after < before order by after - before, user_id limit $9) m
join users u on u.user_id = m.user_id
