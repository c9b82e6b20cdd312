-- Adds ($5 = 1) or subtracts ($5 = -1) result $4 of question $1 in the scopes $6, for users from $2 to before $3.
update user_scores s
set points = s.points + $5 * c.points, answered = s.answered + $5
from question_points c
where c.question_id = $1 and c.revision = $4 and c.user_id >= $2 and c.user_id < $3
  and s.user_id = c.user_id and s.scope = any($6)
returning array_position($6, s.scope) as "scope!", s.user_id, s.points, s.exact, s.correct, s.settled, s.answered
