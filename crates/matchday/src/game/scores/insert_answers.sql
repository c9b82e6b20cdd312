-- Inserts missing score rows with result $4 of question $1 in the scopes $5, for users from $2 to before $3.
insert into user_scores (user_id, scope, points, exact, correct, settled, answered)
select c.user_id, t.scope, c.points, 0, 0, 0, 1
from question_points c
cross join unnest($5::text[]) as t (scope)
where c.question_id = $1 and c.revision = $4 and c.user_id >= $2 and c.user_id < $3
  and not exists (select 1 from user_scores s where s.user_id = c.user_id and s.scope = t.scope)
order by c.user_id, t.scope
returning scope, user_id, points, exact, correct, settled, answered
