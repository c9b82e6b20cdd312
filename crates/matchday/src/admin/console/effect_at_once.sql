-- Faster form of `effect.sql` for the usual case: both results count the same predictions, or one of them has no score
-- and awards no points. $1 match, $2 the team that advances by the new result, $3 the results count predictions made before this time, $4 and $5
-- the current score, $6 and $7 the new score, $8 number of users to list. Millions of users make only a few thousand
-- different forecasts, so points are computed once for each forecast.
with terms as (
    select s.outcome, s.difference, s.exact, s.margin_within, s.margin_points, s.stake, s.advances as rule_advances,
           e.is_knockout, e.multiplier, r.advanced as had_advanced, coalesce(r.is_knockout, false) as was_knockout,
           coalesce(r.multiplier, 2::smallint) as had_multiplier
    from events e join rule_sets s on s.id = e.rule_set_id
    left join event_results r on r.event_id = e.id and r.revision = e.result_revision
    where e.id = $1
), judged as materialized (
    select f.prediction, f.home_goals, f.away_goals, f.confidence, f.advances, f.joker, f.users,
           coalesce(prediction_points(
               row(t.outcome, t.difference, t.exact, t.margin_within, t.margin_points, t.stake, t.rule_advances)::point_rules,
               row(f.prediction, f.home_goals, f.away_goals, f.confidence, f.advances, f.joker)::forecast,
               row($4::integer, $5::integer, t.had_advanced, t.was_knockout, t.had_multiplier)::match_result), 0) as before,
           coalesce(prediction_points(
               row(t.outcome, t.difference, t.exact, t.margin_within, t.margin_points, t.stake, t.rule_advances)::point_rules,
               row(f.prediction, f.home_goals, f.away_goals, f.confidence, f.advances, f.joker)::forecast,
               row($6::integer, $7::integer, $2::text, t.is_knockout, t.multiplier)::match_result), 0) as after
    from (select prediction, home_goals, away_goals, confidence, advances, joker, count(*) as users
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
    ) c
          group by prediction, home_goals, away_goals, confidence, advances, joker) f
    cross join terms t
), most as materialized (
    -- Forecasts of the users who gain most and who lose most: enough for the users to list, or a few more.
    select *, case when after > before then 1 else 2 end as kind
    from (select *, sum(users) over (order by after - before desc range unbounded preceding exclude group) as gain_more,
                 sum(users) over (order by after - before range unbounded preceding exclude group) as lose_more
          from judged) r
    where (after > before and coalesce(gain_more, 0) < $8::bigint) or (after < before and coalesce(lose_more, 0) < $8::bigint)
), named as (
    select m.kind, p.user_id, m.before, m.after,
           row_number() over (partition by m.kind order by abs(m.after - m.before) desc, p.user_id) as place
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
    ) p
    join most m on m.confidence = p.confidence and m.prediction = p.prediction and m.joker = p.joker
        and coalesce(m.advances, '') = coalesce(p.advances, '')
        and coalesce(m.home_goals, -1) = coalesce(p.home_goals, -1) and coalesce(m.away_goals, -1) = coalesce(p.away_goals, -1)
)
select 0 as "kind!", null::bigint as "user_id: UserId", null::text as username,
       coalesce(sum(before * users), 0)::bigint as "before!", coalesce(sum(after * users), 0)::bigint as "after!",
       coalesce(sum(users), 0)::bigint as "users!",
       coalesce(sum(users) filter (where after > before), 0)::bigint as "gaining!",
       coalesce(sum(users) filter (where after < before), 0)::bigint as "losing!",
       coalesce(sum(users) filter (where home_goals = $4 and away_goals = $5), 0)::bigint as "exact_before!",
       coalesce(sum(users) filter (where home_goals = $6 and away_goals = $7), 0)::bigint as "exact_after!",
       coalesce(sum(users) filter (where $4::integer is not null and prediction = pick_of($4, $5)), 0)::bigint as "correct_before!",
       coalesce(sum(users) filter (where $6::integer is not null and prediction = pick_of($6, $7)), 0)::bigint as "correct_after!",
       coalesce(sum((greatest(after, 0) - greatest(before, 0)) * users), 0)::bigint as "worth!"
from judged
union all
select n.kind, n.user_id, u.username, n.before, n.after, 0, 0, 0, 0, 0, 0, 0, 0
from named n join users u on u.user_id = n.user_id where n.place <= $8::bigint
