-- Points of result $2 of match $1, for users from $3 to before $4.
with earned as (
    select p.user_id,
           prediction_points(e.rules_version, row(p.prediction, p.home_goals, p.away_goals, p.confidence)::forecast,
                             row(r.home_score, r.away_score)::final_score) as points
    from event_results r
    join events e on e.id = r.event_id
    -- Predictions made at or after this time were late.
    cross join lateral predictions_before($1, least(r.start_time, r.recorded_at), $3, $4) p
    where r.event_id = $1 and r.revision = $2 and r.home_score is not null
), before as (
    -- Starts from the predictions of the slice, because every user who was paid has one.
    select p.user_id
    from predictions p
    where p.event_id = $1 and p.user_id >= $3 and p.user_id < $4
      and exists (select from coin_payouts c where c.user_id = p.user_id and c.event_id = $1)
)
select coalesce(e.user_id, b.user_id) as "user_id!: UserId", coalesce(e.points, 0) as "points!"
from (select * from earned where points > 0) e full join before b on b.user_id = e.user_id
order by 1
