-- $1 the match, $2 and $3 users from and until, $4 the result that is in their scores, $5 the one that shall be.
insert into user_scores (user_id, scope, points, exact, correct, settled)
select c.user_id, s.scope, sum(c.points), sum(c.exact), sum(c.correct), sum(c.settled)
from (
    select w.sign, w.scopes, p.user_id,
           w.sign * prediction_points(w.rules_version, p.prediction, p.home_goals, p.away_goals, p.confidence,
                                      w.home_score, w.away_score) as points,
           case when p.home_goals = w.home_score and p.away_goals = w.away_score then w.sign else 0 end as exact,
           case when p.prediction = pick_of(w.home_score, w.away_score) then w.sign else 0 end as correct,
           w.sign as settled
    from (
        select case r.revision when $5 then 1 else -1 end as sign, r.home_score, r.away_score, e.rules_version,
               score_scopes(e.tournament_id, r.start_time) as scopes,
               -- What was said at or after this moment was not in time.
               least(r.start_time, r.recorded_at) as closed_at
        from event_results r join events e on e.id = r.event_id
        where r.event_id = $1 and r.revision in ($4, $5) and r.home_score is not null
    ) w
    cross join lateral predictions_before($1, w.closed_at, $2, $3) p
) c
cross join lateral unnest(c.scopes) as s (scope)
group by c.user_id, s.scope
having sum(c.points) <> 0 or sum(c.exact) <> 0 or sum(c.correct) <> 0 or sum(c.settled) <> 0
order by c.user_id, s.scope
on conflict (user_id, scope) do update
    set points = user_scores.points + excluded.points, exact = user_scores.exact + excluded.exact,
        correct = user_scores.correct + excluded.correct, settled = user_scores.settled + excluded.settled
