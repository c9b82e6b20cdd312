-- Sums points of predictions and answers in rounds in which the matches of a member begin to count. $1 and $2 are users,
-- and the times from which matches count for each: a user can be given several times. $3 to $6 are tournaments, rounds (0
-- for matches without one), and the times that a round is read for: after the first, and not after the second. $7 are the
-- users on Citus, and null on PostgreSQL, which would read the predictions of all of them for each match of each. The
-- condition on matches prunes partitions, for any plan.
select m.number as "number!", e.round, sum(c.points)::integer as "points!", sum(c.exact)::integer as "exact!",
       sum(c.correct)::integer as "correct!", count(*)::integer as "settled!", 0 as "answered!"
from unnest($1::bigint[], $2::timestamptz[]) with ordinality as m (user_id, start, number)
join unnest($3::bigint[], $4::smallint[], $5::timestamptz[], $6::timestamptz[]) as g (tournament_id, round, after, until)
  on m.start > g.after and m.start <= g.until
join events e on e.tournament_id = g.tournament_id and coalesce(e.round, 0) = g.round and e.start_time >= m.start
join result_points c on c.event_id = e.id and c.revision = e.result_revision and c.user_id = m.user_id
where c.event_id = any (array(
    select counted.id from unnest($3::bigint[], $4::smallint[]) as r (tournament_id, round)
    join events counted on counted.tournament_id = r.tournament_id and coalesce(counted.round, 0) = r.round))
  and ($7::bigint[] is null or c.user_id = any($7))
group by m.number, e.round
union all
select m.number, r.round, sum(c.points)::integer, 0, 0, 0, count(*)::integer
from unnest($1::bigint[], $2::timestamptz[]) with ordinality as m (user_id, start, number)
join unnest($3::bigint[], $4::smallint[], $5::timestamptz[], $6::timestamptz[]) as g (tournament_id, round, after, until)
  on m.start > g.after and m.start <= g.until
join questions q on q.tournament_id = g.tournament_id
join question_results r on r.question_id = q.id and r.revision = q.result_revision and coalesce(r.round, 0) = g.round
                       and r.locks_at >= m.start
join question_points c on c.question_id = q.id and c.revision = q.result_revision and c.user_id = m.user_id
where $7::bigint[] is null or c.user_id = any($7)
group by m.number, r.round
