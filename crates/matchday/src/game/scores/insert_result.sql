-- Inserts missing score rows with result $4 of match $1 in the scopes $5, for users from $2 to before $3.
insert into user_scores (user_id, scope, points, exact, correct, settled)
select p.user_id, t.scope,
       prediction_points(e.rules_version, row(p.prediction, p.home_goals, p.away_goals, p.confidence)::forecast,
                         row(r.home_score, r.away_score)::final_score),
       case when p.home_goals = r.home_score and p.away_goals = r.away_score then 1 else 0 end,
       case when p.prediction = pick_of(r.home_score, r.away_score) then 1 else 0 end,
       1
from event_results r
join events e on e.id = r.event_id
cross join lateral predictions_before($1, least(r.start_time, r.recorded_at), $2, $3) p
cross join unnest($5::text[]) as t (scope)
where r.event_id = $1 and r.revision = $4 and r.home_score is not null
  and not exists (select 1 from user_scores s where s.user_id = p.user_id and s.scope = t.scope)
order by p.user_id, t.scope
returning scope, user_id, points, exact, correct, settled
