-- Points of result $2 of match $1, for users from $3 to before $4.
with earned as (
    select c.user_id, c.points
    from result_points c
    where c.event_id = $1 and c.revision = $2 and c.user_id >= $3 and c.user_id < $4 and c.points > 0
), before as (
    -- Starts from the predictions of the slice, because every user who was paid has one.
    select p.user_id
    from predictions p
    where p.event_id = $1 and p.user_id >= $3 and p.user_id < $4
      and exists (select 1 from coin_payouts c where c.user_id = p.user_id and c.event_id = $1)
)
select coalesce(e.user_id, b.user_id) as "user_id!: UserId", coalesce(e.points, 0) as "points!"
from earned e full join before b on b.user_id = e.user_id
order by 1
