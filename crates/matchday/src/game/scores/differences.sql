-- Lists stored scores of users from $1 to before $2 that differ from the ones computed from predictions and results.
with expected as (
    select p.user_id, s.scope,
           sum(prediction_points(e.rules_version, row(p.prediction, p.home_goals, p.away_goals, p.confidence)::forecast,
                                 row(r.home_score, r.away_score)::final_score)) as points,
           count(*) filter (where p.home_goals = r.home_score and p.away_goals = r.away_score) as exact,
           count(*) filter (where p.prediction = pick_of(r.home_score, r.away_score)) as correct,
           count(*) as settled
    from score_lanes l
    join event_results r on r.event_id = l.event_id and r.revision = l.revision and r.home_score is not null
    join events e on e.id = l.event_id
    cross join lateral predictions_before(
        l.event_id, least(r.start_time, r.recorded_at), greatest(l.from_user, $1), least(l.until_user, $2)) p
    cross join lateral unnest(score_scopes(e.tournament_id, r.start_time)) as s (scope)
    where l.from_user < $2 and l.until_user > $1
    group by p.user_id, s.scope
), found as (
    select user_id, scope, points, exact, correct, settled from user_scores where user_id >= $1 and user_id < $2
), compared as (
    select coalesce(x.user_id, f.user_id) as user_id, coalesce(x.scope, f.scope) as scope,
           coalesce(x.points, 0)::integer as points, coalesce(x.exact, 0)::integer as exact,
           coalesce(x.correct, 0)::integer as correct, coalesce(x.settled, 0)::integer as settled,
           coalesce(f.points, 0) as found_points, coalesce(f.exact, 0) as found_exact,
           coalesce(f.correct, 0) as found_correct, coalesce(f.settled, 0) as found_settled
    from expected x full join found f on f.user_id = x.user_id and f.scope = x.scope
)
select user_id as "user_id!: UserId", scope as "scope!", points as "points!", exact as "exact!", correct as "correct!",
       settled as "settled!", found_points as "found_points!", found_exact as "found_exact!",
       found_correct as "found_correct!", found_settled as "found_settled!"
from compared
where (points, exact, correct, settled) <> (found_points, found_exact, found_correct, found_settled)
order by user_id, scope
