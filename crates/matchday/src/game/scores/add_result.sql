-- Adds ($5 = 1) or subtracts ($5 = -1) result $4 of match $1 in the scopes $6, for users from $2 to before $3.
update user_scores s
set points = s.points + $5 * c.points, exact = s.exact + $5 * c.exact, correct = s.correct + $5 * c.correct,
    settled = s.settled + $5
from (
    select p.user_id,
           prediction_points(e.rules_version, row(p.prediction, p.home_goals, p.away_goals, p.confidence)::forecast,
                             row(r.home_score, r.away_score)::final_score) as points,
           case when p.home_goals = r.home_score and p.away_goals = r.away_score then 1 else 0 end as exact,
           case when p.prediction = pick_of(r.home_score, r.away_score) then 1 else 0 end as correct
    from event_results r
    join events e on e.id = r.event_id
    -- Predictions made at or after this time were late.
    cross join lateral predictions_before($1, least(r.start_time, r.recorded_at), $2, $3) p
    where r.event_id = $1 and r.revision = $4 and r.home_score is not null
) c
where s.user_id = c.user_id and s.scope = any($6)
returning array_position($6, s.scope) as "scope!", s.user_id, s.points, s.exact, s.correct, s.settled
