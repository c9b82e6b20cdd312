-- $1 the match, $2 the result, $3 and $4 users from and until.
with earned as (
    select p.user_id,
           prediction_points(e.rules_version, row(p.prediction, p.home_goals, p.away_goals, p.confidence)::forecast,
                             row(r.home_score, r.away_score)::final_score) as points
    from event_results r
    join events e on e.id = r.event_id
    -- What was said at or after this moment was not in time.
    cross join lateral predictions_before($1, least(r.start_time, r.recorded_at), $3, $4) p
    where r.event_id = $1 and r.revision = $2 and r.home_score is not null
), before as (
    -- Asked of the predictions of the slice: whoever was paid has one.
    select p.user_id
    from predictions p
    where p.event_id = $1 and p.user_id >= $3 and p.user_id < $4
      and exists (select from coin_payouts c where c.user_id = p.user_id and c.event_id = $1)
)
select coalesce(e.user_id, b.user_id) as "user_id!: UserId", coalesce(e.points, 0) as "points!"
from (select * from earned where points > 0) e full join before b on b.user_id = e.user_id
order by 1
