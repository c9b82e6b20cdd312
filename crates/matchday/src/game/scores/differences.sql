-- Lists stored scores of users from $1 to before $2 that differ from the ones computed from predictions, answers and
-- results.
with parts as (
    select c.user_id, s.scope, c.points, c.exact, c.correct, 1 as settled, 0 as answered
    from score_lanes l
    join event_results r on r.event_id = l.source_id and r.revision = l.revision and r.home_score is not null
    join events e on e.id = l.source_id
    join result_points c on c.event_id = l.source_id and c.revision = l.revision
     and c.user_id >= greatest(l.from_user, $1) and c.user_id < least(l.until_user, $2)
    cross join lateral unnest(score_scopes(e.tournament_id, r.start_time, r.round)) as s (scope)
    where l.source = 'match' and l.from_user < $2 and l.until_user > $1
    union all
    select c.user_id, s.scope, c.points, 0, 0, 0, 1
    from score_lanes l
    join question_results r on r.question_id = l.source_id and r.revision = l.revision and r.resolution is not null
    join questions q on q.id = l.source_id
    join question_points c on c.question_id = l.source_id and c.revision = l.revision
     and c.user_id >= greatest(l.from_user, $1) and c.user_id < least(l.until_user, $2)
    cross join lateral unnest(score_scopes(q.tournament_id, r.locks_at, r.round)) as s (scope)
    where l.source = 'question' and l.from_user < $2 and l.until_user > $1
), expected as (
    select user_id, scope, sum(points) as points, sum(exact) as exact, sum(correct) as correct, sum(settled) as settled,
           sum(answered) as answered
    from parts group by user_id, scope
), found as (
    select user_id, scope, points, exact, correct, settled, answered
    from user_scores where user_id >= $1 and user_id < $2
), compared as (
    select coalesce(x.user_id, f.user_id) as user_id, coalesce(x.scope, f.scope) as scope,
           coalesce(x.points, 0)::integer as points, coalesce(x.exact, 0)::integer as exact,
           coalesce(x.correct, 0)::integer as correct, coalesce(x.settled, 0)::integer as settled,
           coalesce(x.answered, 0)::integer as answered,
           coalesce(f.points, 0) as found_points, coalesce(f.exact, 0) as found_exact,
           coalesce(f.correct, 0) as found_correct, coalesce(f.settled, 0) as found_settled,
           coalesce(f.answered, 0) as found_answered
    from expected x full join found f on f.user_id = x.user_id and f.scope = x.scope
)
select user_id as "user_id!: UserId", scope as "scope!", points as "points!", exact as "exact!", correct as "correct!",
       settled as "settled!", answered as "answered!", found_points as "found_points!", found_exact as "found_exact!",
       found_correct as "found_correct!", found_settled as "found_settled!", found_answered as "found_answered!"
from compared
where (points, exact, correct, settled, answered)
   <> (found_points, found_exact, found_correct, found_settled, found_answered)
order by user_id, scope
