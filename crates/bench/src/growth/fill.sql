-- Fills a freshly migrated database. Each step starts with `-- step:`. Names in braces are numbers of the size: see `Size`.
-- Values follow from the number of the user, match or league, so that two runs give the same rows.

-- step: accounts
insert into users (created_at, username, username_is_generated, phone, phone_verified_at)
select timestamptz '2024-01-01' + n * interval '1 second', 'fan' || n, false, '+1' || (2012000000 + n), timestamptz '2024-01-01'
from generate_series(1, {accounts}) n order by n;
insert into username_claims (username, user_id, claimed_at) select username, user_id, created_at from users;
insert into phone_claims (phone, user_id, claimed_at) select phone, user_id, created_at from users;
insert into wallets (user_id, balance, transactions) select user_id, 100, 0 from users

-- step: matches of past seasons
insert into sports (slug, name) values ('football', 'Football');
insert into tournaments (sport_id, slug, name)
select 1, 'season-' || n, 'Season ' || n from generate_series(1, {past_matches} / 380 + 2) n order by n;
insert into teams (sport_id, slug, name) select 1, 'team-' || n, 'Team ' || n from generate_series(1, {teams}) n order by n;
insert into events (tournament_id, key, home_team_id, away_team_id, start_time, venue, status, home_score, away_score, result_revision,
                    round, updated_at)
select (n - 1) / 380 + 1, 'm' || n, n % {teams} + 1, (n + 7) % {teams} + 1, timestamptz '2022-01-01' + n * interval '20 minutes', 'Park',
       'finished', n % 4, n % 3, 1, (n - 1) % 380 / 10 + 1, timestamptz '2022-01-01' + n * interval '20 minutes'
from generate_series(1, {past_matches}) n order by n

-- step: this season
insert into tournaments (id, sport_id, slug, name) overriding system value values ({season}, 1, 'this-season', 'This season');
insert into events (tournament_id, key, home_team_id, away_team_id, start_time, venue, status, home_score, away_score, result_revision,
                    round, updated_at)
select {season}, 'm' || n, n % 20 + 1, (n + 7) % 20 + 1,
       case when n <= 380 then now() - (381 - n) * interval '18 hours' when n = 381 then now() - interval '30 minutes'
            else now() + (n - 381) * interval '1 day' end,
       'Park', case when n <= 380 then 'finished' when n = 381 then 'live' else 'scheduled' end,
       case when n <= 381 then n % 4 end, case when n <= 381 then n % 3 end, case when n <= 380 then 1 else 0 end,
       least((n - 1) / 10 + 1, 39), now()
from generate_series(1, 391) n order by n;
insert into event_results (event_id, revision, home_score, away_score, start_time, round, recorded_at, look_again_at, applied_at, status)
select id, 1, home_score, away_score, start_time, round, start_time + interval '2 hours', start_time + interval '2 hours',
       start_time + interval '2 hours', status
from events where status = 'finished';
insert into score_lanes (source, source_id, lane, from_user, until_user, revision, shown_revision, written)
select 'match', id, 0, -9223372036854775808, 9223372036854775807, 1, 1, 0 from events where status = 'finished';
select add_event_partitions()

-- step: predictions without indexes
alter table predictions drop constraint predictions_pkey;
drop index predictions_by_event;
drop index predictions_without_salt;
do $$
declare
    parts integer := {past_matches} / 1000;
begin
    -- Six predictions of each user, each in another partition.
    for part in 0 .. parts - 1 loop
        insert into predictions (user_id, event_id, prediction, home_goals, away_goals, confidence, revision, salt, created_at, updated_at)
        select n, part * 1000 + n::int8 * 7919 % 1000 + 1, (array['home', 'draw', 'away'])[n % 3 + 1], null, null, n % 101,
               case when n % 5 = 0 then 2 else 1 end, gen_random_uuid(), timestamptz '2021-12-01', timestamptz '2021-12-02'
        from generate_series(part % (parts / 6) + 1, {accounts}, parts / 6) n;
    end loop;
end $$;
-- Many predictions of a live and of an open match, mostly the same, and the whole season of some users.
insert into predictions (user_id, event_id, prediction, confidence, revision, salt, created_at, updated_at)
select n, e, case when n % 1000 = 0 then 'away' else 'home' end, n % 101, case when n % 5 = 0 then 2 else 1 end, gen_random_uuid(),
       now() - interval '2 days', now() - interval '1 day'
from generate_series(1, {big_match}) n, unnest(array[{live}, {open}]) e;
insert into predictions (user_id, event_id, prediction, home_goals, away_goals, confidence, revision, salt, created_at, updated_at)
select n, e, pick_of(n % 4, (n + e) % 3), n % 4, (n + e) % 3, n % 101, 1, gen_random_uuid(), now() - interval '320 days',
       now() - interval '320 days'
from generate_series(1, {season_fans}) n, generate_series({past_matches} + 1, {past_matches} + 380) e

-- step: pseudonyms
insert into pseudonyms (user_id, tournament_id, pseudonym)
select n, {season}, gen_random_uuid() from generate_series(1, {big_match}) n

-- step: indexes of predictions
alter table predictions add primary key (user_id, event_id);
create index predictions_by_event on predictions (event_id, user_id);
create index predictions_without_salt on predictions (event_id, user_id) where salt is null

-- step: revisions and tallies
insert into prediction_revisions (user_id, event_id, revision, prediction, confidence, salt, made_at, replaced_at)
select user_id, event_id, 1, 'draw', 50, gen_random_uuid(), created_at, updated_at from predictions where revision = 2;
insert into event_tallies (event_id, slot, home, draw, away, confidence)
select event_id, 0, count(*) filter (where prediction = 'home'), count(*) filter (where prediction = 'draw'),
       count(*) filter (where prediction = 'away'), sum(confidence)
from predictions group by event_id

-- step: scores
insert into user_scores (user_id, scope, points, exact, correct, settled)
select n, scope, n::int8 * 7919 % 5000, n % 30, n % 200, 380
from generate_series(1, {accounts}) n,
     unnest(array['all', 'month:' || to_char(now() at time zone 'UTC', 'YYYY-MM'), 'tournament:{season}',
                  'week:' || to_char(now() at time zone 'UTC', 'IYYY-IW')]) scope
order by n, scope;
insert into user_scores (user_id, scope, points, exact, correct, settled)
select n, 'round:{season}:' || r, n::int8 * 31 * r % 300, n % 3, n % 8, 10
from generate_series(1, {accounts} / 5) n, generate_series(1, {rounds}) r;
insert into user_scores (user_id, scope, points, exact, correct, settled)
select n, 'round:{season}:' || r, n::int8 * 31 * r % 300, n % 3, n % 8, 10
from generate_series(1, {season_fans}) n, generate_series({rounds} + 1, 38) r

-- step: leagues
insert into leagues (name, owner_id, visibility, counts_from, tournament_ids, max_members, member_count, code_digest, code_ciphertext,
                     code_key, has_chat, created_at)
select 'League ' || n, n, case when n % 2 = 0 then 'public' else 'private' end, 'league_start', array[{season}], 100, 10,
       sha256(n::text::bytea), '', 1, false, now() - interval '300 days'
from generate_series(1, {leagues}) n order by n;
insert into league_members (user_id, league_id, joined_at)
select distinct (n::int8 * 10 + k * k) % {accounts} + 1, n, now() - interval '300 days' from generate_series(1, {leagues}) n, generate_series(0, 9) k

-- step: chat rooms
insert into rooms (matrix_id, alias, name, creator_id, is_private, created_at, made_until, opened_at)
select '!room' || n || ':matchday.localhost', 'room' || n, 'Room ' || n, n % {accounts} + 1, n % 2 = 1, now(), now(), now()
from generate_series(1, {rooms}) n order by n;
insert into rooms (matrix_id, alias, name, event_id, stand, created_at, made_until, opened_at)
select '!match' || id || ':matchday.localhost', 'match' || id, 'Match ' || id, id, 1, now(), now(), now()
from events where id > {past_matches} or id % 10 = 0 order by id;
insert into room_activity (room_id, member_count, last_activity, compared_at)
select id, 1, now() - id * interval '1 second', now() from rooms;
insert into room_members (user_id, room_id, membership, changed_at)
select creator_id, id, 'join', now() from rooms where creator_id is not null;
insert into room_members (user_id, room_id, membership, changed_at)
select n, r.id, 'join', now() from rooms r, generate_series(1, 5000) n where r.event_id = {live}

-- step: follows, blocks, coins, questions and texts
insert into follows (user_id, followed_id, followed_at)
select n, 1, now() from generate_series(2, {accounts} / 5) n union all select 1, n, now() from generate_series(2, 1001) n;
insert into followers (user_id, follower_id, followed_at) select followed_id, user_id, followed_at from follows;
insert into follow_counts (user_id, slot, followers, following)
select user_id, 0, sum(followers), sum(following)
from (select followed_id as user_id, 1 as followers, 0 as following from follows union all select user_id, 0, 1 from follows) f
group by user_id;
insert into blocks (user_id, blocked_id, created_at) select 1, n, now() from generate_series(2001, 2500) n;
insert into coin_transactions (user_id, number, transaction_id, kind, amount, balance, created_at)
select 1, n, gen_random_uuid(), 'points', 1, 100 + n, now() from generate_series(1, {accounts} / 50) n;
insert into coin_entries (user_id, number, account, amount)
select 1, n, account, amount from generate_series(1, {accounts} / 50) n, (values ('wallet', 1), ('points', -1)) v (account, amount);
update wallets set balance = 100 + {accounts} / 50, transactions = {accounts} / 50 where user_id = 1;
insert into questions (tournament_id, key, round, text, kind, scoring, points, locks_at, is_void, created_at)
select case when n <= 200 then {season} else n % 15 + 1 end, 'q' || n, n % 38 + 1, 'How many goals?', 'number', 'nearest', 20, now() + interval '30 days', false, now()
from generate_series(1, {questions}) n order by n;
insert into answers (user_id, question_id, value, revision, created_at, updated_at)
select n, 1, n % 10, 1, now(), now() from generate_series(1, {accounts} / 5) n;
insert into question_tallies (question_id, slot, choice, answers)
select 1, 0, value, count(*) from answers group by value;
insert into idempotency_keys (user_id, key_digest, request_digest, status, content_type, body, created_at)
select n, sha256(n::text::bytea), sha256(n::text::bytea), 200, 'application/json', '{}', now() from generate_series(1, {accounts} / 5) n;
insert into sms_log (code_id, phone, status, provider, attempts, created_at, expires_at)
select n, '+1' || (2012000000 + n), 'sent', 'console', 1, now(), now() from generate_series(1, {accounts} / 5) n

-- step: statistics
vacuum (analyze, freeze)
