-- Adds ($5 = 1) or subtracts ($5 = -1) result $4 of match $1 in the scopes $6, for users from $2 to before $3.
update user_scores s
set points = s.points + $5 * c.points, exact = s.exact + $5 * c.exact, correct = s.correct + $5 * c.correct,
    settled = s.settled + $5
from result_points c
where c.event_id = $1 and c.revision = $4 and c.user_id >= $2 and c.user_id < $3
  and s.user_id = c.user_id and s.scope = any($6)
returning array_position($6, s.scope) as "scope!", s.user_id, s.points, s.exact, s.correct, s.settled, s.answered
