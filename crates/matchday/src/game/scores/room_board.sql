-- $1 room, $2 its match or null, $3 whether the room is a stand of the match, $4 scope, $5 viewer, $6 number of top
-- entries, $7 number of neighbours before and after the viewer.
with places as (
    -- All stands of a match count as one room.
    select id from rooms where id = $1 or ($3 and event_id = $2 and stand is not null)
), members as (
    select distinct user_id from room_members where room_id in (select id from places) and membership = 'join'
), ranked as materialized (
    select s.user_id, s.points, s.exact, s.correct, s.settled, rank() over (order by s.points desc) as rank,
           row_number() over (order by s.points desc, s.exact desc, s.correct desc, s.user_id) as position
    from members m join user_scores s on s.user_id = m.user_id and s.scope = $4
    where s.settled > 0
), own as (
    select position from ranked where user_id = $5
), shown as (
    select r.*, u.username, u.name
    from ranked r join users u on u.user_id = r.user_id
    where (r.position <= $6 or r.position between (select position - $7 from own) and (select position + $7 from own))
      and not exists (select from blocks b where b.user_id = $5 and b.blocked_id = r.user_id)
)
select (select count(*) from ranked) as "total!", (select position from own) as own_position,
       s.position as "position?", s.rank as "rank?", s.user_id as "user_id?: UserId", s.username as "username?", s.name,
       s.points as "points?", s.exact as "exact?", s.correct as "correct?", s.settled as "settled?"
from (select 1) as always left join shown s on true
order by s.position
