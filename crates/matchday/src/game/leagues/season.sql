-- A season for tests: 20 rounds of 5 matches, 12 matches without a round, and questions, all with results, predictions and
-- answers of 40 users. Some matches of a round were postponed, and some are void. 500 more users predicted all matches, and
-- have no scores.
insert into sports (slug, name) values ('football', 'Football');
insert into tournaments (sport_id, slug, name) select min(id), 't' || n, 'T' || n from sports, generate_series(1, 2) n group by n;
insert into teams (sport_id, slug, name) select min(id), 'm' || n, 'M' || n from sports, generate_series(1, 10) n group by n;
insert into events (tournament_id, key, home_team_id, away_team_id, start_time, status, home_score, away_score, round,
                    result_revision, updated_at)
select t.id, 'r' || n, (select min(id) from teams) + n % 10, (select min(id) from teams) + (n + 3) % 10,
       timestamptz '2026-01-03 15:00:00+00' + (n / 5) * interval '7 days' + (n % 5) * interval '3 hours'
           + case when n % 17 = 0 then interval '60 days' else interval '0' end + (t.id % 2) * interval '40 days',
       case when n % 23 = 0 then 'abandoned' else 'finished' end, n % 4, n % 3, n / 5 + 1, 1, now()
from tournaments t, generate_series(0, 99) n;
insert into events (tournament_id, key, home_team_id, away_team_id, start_time, status, home_score, away_score,
                    result_revision, updated_at)
select t.id, 'x' || n, (select min(id) from teams) + n % 10, (select min(id) from teams) + (n + 1) % 10,
       timestamptz '2026-01-05 15:00:00+00' + n * interval '13 days', 'finished', n % 3, n % 2, 1, now()
from tournaments t, generate_series(0, 11) n;
insert into event_results (event_id, revision, home_score, away_score, start_time, round, recorded_at, look_again_at, applied_at)
select id, 1, case when status = 'finished' then home_score end, case when status = 'finished' then away_score end, start_time,
       round, start_time + interval '2 hours', start_time, start_time
from events;
insert into predictions (user_id, event_id, prediction, home_goals, away_goals, confidence, revision, created_at, updated_at)
select u, e.id, case when (u + e.id) % 3 > (u * e.id) % 3 then 'home' when (u + e.id) % 3 = (u * e.id) % 3 then 'draw' else 'away' end,
       (u + e.id) % 3, (u * e.id) % 3, 0, 1, timestamptz '2025-12-01', timestamptz '2025-12-01'
from events e, generate_series(1, 40) u where (u + e.id) % 7 > 0;
insert into questions (tournament_id, key, round, text, kind, scoring, points, locks_at, resolution, is_void, result_revision, created_at)
select t.id, 'q' || n, case when n % 3 > 0 then n end, 'How many?', 'number', 'exact', 10,
       timestamptz '2026-01-02 12:00:00+00' + n * interval '8 days', array[n % 3], false, 1, timestamptz '2025-12-01'
from tournaments t, generate_series(1, 12) n;
insert into question_results (question_id, revision, resolution, points, locks_at, round, recorded_at, look_again_at, applied_at)
select id, 1, resolution, points, locks_at, round, locks_at, locks_at, locks_at from questions;
insert into answers (user_id, question_id, value, revision, created_at, updated_at)
select u, q.id, (u + q.id) % 3, 1, timestamptz '2025-12-01', timestamptz '2025-12-01' from questions q, generate_series(1, 40) u;
insert into user_scores (user_id, scope, points, exact, correct, settled, answered)
select user_id, scope, sum(points), sum(exact), sum(correct), sum(settled), sum(answered)
from (select c.user_id, unnest(score_scopes(e.tournament_id, r.start_time, r.round)) as scope, c.points, c.exact, c.correct,
             1 as settled, 0 as answered
      from result_points c join events e on e.id = c.event_id join event_results r on r.event_id = e.id
      union all
      select c.user_id, unnest(score_scopes(q.tournament_id, q.locks_at, q.round)), c.points, 0, 0, 0, 1
      from question_points c join questions q on q.id = c.question_id) s
group by user_id, scope;
insert into predictions (user_id, event_id, prediction, confidence, revision, created_at, updated_at)
select u, e.id, 'home', 0, 1, timestamptz '2025-12-01', timestamptz '2025-12-01' from events e, generate_series(101, 600) u;
