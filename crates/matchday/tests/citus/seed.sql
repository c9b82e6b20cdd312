-- The same rows on plain PostgreSQL and on Citus. Users, rooms, matches and teams have the ids from 1, and the rows of
-- user n refer to the match, room and team n modulo their number, so an argument that is an id finds rows in any table.
insert into sports (id, slug, name) overriding system value select n, 'sport' || n, 'Sport ' || n from generate_series(1, 3) n;
insert into tournaments (id, sport_id, slug, name, logo) overriding system value
    select n, 1, 'cup' || n, 'Cup ' || n, null from generate_series(1, 3) n;
insert into teams (id, sport_id, slug, name, logo, country, founded) overriding system value
    select n, 1, 'team' || n, 'Team ' || n, null, 'GB', 1900 + n from generate_series(1, 20) n;
insert into events (id, tournament_id, key, home_team_id, away_team_id, start_time, venue, status, home_score, away_score,
                    result_revision, updated_at) overriding system value
    select n, 1 + n % 3, 'm' || n, n, n % 20 + 1, timestamptz '2026-06-01 12:00+00' + n * interval '1 hour', 'Ground',
           case when n % 4 = 0 then 'finished' when n = 6 then 'postponed' else 'scheduled' end,
           case when n % 4 = 0 then 2 end, case when n % 4 = 0 then 1 end, case when n % 4 = 0 then 1 else 0 end,
           timestamptz '2026-06-01 12:00+00' from generate_series(1, 20) n;
insert into users (user_id, created_at, username, username_is_generated, phone, phone_verified_at, has_chat_account, name,
                   banned_at, banned_until, muted_at, muted_until) overriding system value
    select n, timestamptz '2026-05-01 00:00+00', 'fan' || n, n % 2 = 0, '+1415555' || lpad(n::text, 4, '0'),
           timestamptz '2026-05-01 00:00+00', n % 3 > 0, 'Fan ' || n,
           case when n % 11 = 0 then timestamptz '2026-05-20 00:00+00' end,
           case when n % 22 = 0 then timestamptz '2026-06-01 00:00+00' end,
           case when n % 13 = 0 then timestamptz '2026-05-20 00:00+00' end,
           case when n % 26 = 0 then timestamptz '2026-06-01 00:00+00' end
    from generate_series(1, 80) n;
insert into username_claims select 'fan' || n, n, timestamptz '2026-05-01 00:00+00' from generate_series(1, 80) n;
insert into phone_claims select '+1415555' || lpad(n::text, 4, '0'), n, timestamptz '2026-05-01 00:00+00' from generate_series(1, 80) n;
insert into sessions (user_id, token_hash, id, created_at, last_used_at, expires_at, check_at, user_agent, device_id) overriding system value
    select n, sha256(n::text::bytea), n, timestamptz '2026-05-01 00:00+00', timestamptz '2026-05-30 00:00+00',
           timestamptz '2026-06-01 00:00+00' + n * interval '1 hour', timestamptz '2026-05-31 00:00+00' + n * interval '1 second', 'agent', 'device' || n
    from generate_series(1, 80) n;
insert into user_teams select n, r, (n + r) % 20 + 1 from generate_series(1, 80) n, generate_series(0, 2) r;
insert into rooms (id, matrix_id, alias, name, topic, event_id, stand, creator_id, is_private, created_at, made_until, opened_at, announces) overriding system value
    select n, '!room' || n || ':example.org', 'room' || n, 'Room ' || n, 'Topic', n, case when n % 2 = 0 then 1 end,
           case when n % 2 = 1 then n end, n % 5 = 0, timestamptz '2026-05-01 00:00+00', timestamptz '2026-05-01 00:00+00',
           case when n <> 19 then timestamptz '2026-05-01 00:00+00' end, true from generate_series(1, 20) n;
insert into room_activity select n, n * 3, timestamptz '2026-05-25 00:00+00' + n * interval '1 hour', timestamptz '2026-05-20 00:00+00' from generate_series(1, 20) n;
insert into room_members (user_id, room_id, membership, invited_by, active_at, changed_at)
    select n, (n + r) % 20 + 1, (array['join', 'join', 'invite', 'ban', 'leave'])[(n + r) % 5 + 1], n % 80 + 1,
           timestamptz '2026-05-25 00:00+00', timestamptz '2026-05-20 00:00+00' from generate_series(1, 80) n, generate_series(0, 4) r;
insert into remote_members select n, '@guest' || r || ':elsewhere.example', 'join', timestamptz '2026-05-20 00:00+00'
    from generate_series(1, 20) n, generate_series(1, 3) r;
insert into room_statistics select n, timestamptz '2026-05-25 00:00+00', '{"members": 1}', timestamptz '2026-05-25 00:00+00' + n * interval '1 second' from generate_series(1, 10) n;
insert into seats select n, n % 20 + 1, n % 20 + 1, timestamptz '2026-06-01 00:00+00' + n * interval '1 hour' from generate_series(1, 80) n;
insert into chat_inbox (event_id, id, matrix_room, type, sender, state_key, sent_at, content, received_at, outcome, fault) overriding system value
    select '$event' || n, n, '!room' || n % 20 + 1 || ':example.org', 'm.room.message', '@fan' || n || ':example.org', null,
           timestamptz '2026-05-25 00:00+00', '{}', timestamptz '2026-05-25 00:00+00', (array[null, 'applied', 'set_aside'])[n % 3 + 1],
           case when n % 3 = 2 then 'fault' end from generate_series(1, 30) n;
insert into mirror_marks select 'mark' || n, timestamptz '2026-05-25 00:00+00' from generate_series(1, 3) n;
insert into restrictions (user_id, id, action, reason, operator, created_at, until) overriding system value
    select n, n, 'ban', 'reason', 'ada', timestamptz '2026-05-20 00:00+00', null from generate_series(11, 80, 11) n;
insert into blocks select n, (n + r) % 80 + 1, timestamptz '2026-05-20 00:00+00' from generate_series(1, 80) n, generate_series(1, 2) r;
insert into reports (user_id, id, room_id, event_id, reason, sender, sent_at, content, created_at, closed_at, resolution, erase_at) overriding system value
    select n, n, n % 20 + 1, '$event' || n, 'rude', '@fan' || n % 80 + 1 || ':example.org', timestamptz '2026-05-25 00:00+00', '{"body": "hello"}',
           timestamptz '2026-05-25 00:00+00' + n * interval '1 minute',
           case when n % 2 = 0 then timestamptz '2026-05-26 00:00+00' + n * interval '1 minute' end, case when n % 2 = 0 then 'closed' end,
           case when n % 3 = 0 then timestamptz '2026-05-27 00:00+00' + n * interval '1 second' end from generate_series(1, 40) n;
insert into predictions (user_id, event_id, id, prediction, home_goals, away_goals, confidence, revision, created_at, updated_at) overriding system value
    select n, e, n * 100 + e, (array['home', 'draw', 'away'])[(n + e) % 3 + 1],
           case when n % 2 = 0 then (array[2, 1, 0])[(n + e) % 3 + 1] end, case when n % 2 = 0 then 1 end, n % 101,
           case when n % 7 = 0 then 2 else 1 end, timestamptz '2026-05-25 00:00+00' + n * interval '1 second',
           -- Some were replaced after the start of the match.
           case when n % 7 = 0 then timestamptz '2026-06-03 00:00+00' else timestamptz '2026-05-25 00:00+00' + n * interval '1 second' end
    from generate_series(1, 80) n, generate_series(1, 20) e where (n + 3 * e) % 5 > 0;
insert into prediction_revisions (user_id, event_id, revision, prediction, home_goals, away_goals, confidence, made_at, replaced_at)
    select user_id, event_id, 1, 'draw', 1, 1, 50, created_at, updated_at from predictions where revision = 2;
insert into event_tallies select e, s, e, s, 1, e * 10 from generate_series(1, 20) e, generate_series(1, 3) s;
insert into event_results (event_id, revision, home_score, away_score, start_time, recorded_at, look_again_at, applied_at)
    select n, 1, 2, 1, timestamptz '2026-06-01 12:00+00' + n * interval '1 hour', timestamptz '2026-06-02 12:00+00', timestamptz '2026-06-02 13:00+00',
           case when n % 8 = 0 then timestamptz '2026-06-02 12:01+00' end from generate_series(4, 20, 4) n;
insert into score_lanes (source, source_id, lane, from_user, until_user, revision, shown_revision, written, paid_revision)
    select 'match', n, l, case when l = 1 then -9223372036854775808 else 40 end, case when l = 1 then 40 else 9223372036854775807 end, n / 8 % 2, 0, n, 0
    from generate_series(4, 20, 4) n, generate_series(1, 2) l;
insert into user_scores select n, s, n % 30, n % 3, n % 5, 1 + n % 6
    from generate_series(1, 80) n, unnest(array['all', 'month:2026-06', 'tournament:1', 'week:2026-23']) s where n % 9 > 0;
insert into wallets select n, n * 10, 2 from generate_series(1, 80) n where n <> 77;
insert into coin_transactions (user_id, number, transaction_id, kind, amount, balance, reason, reference, request_key, event_id, created_at)
    select n, t, md5(n || '/' || t)::uuid, case when t = 1 then 'welcome' else 'deduction' end, case when t = 1 then n * 11 else -n end,
           case when t = 1 then n * 11 else n * 10 end, case when t = 2 then 'quiz' end, case when t = 2 then 'reference' || n end,
           case when t = 2 then sha256(n::text::bytea) end, null, timestamptz '2026-05-25 00:00+00' from generate_series(1, 80) n, generate_series(1, 2) t where n <> 77;
insert into coin_entries select user_id, number, 'wallet', amount from coin_transactions;
insert into coin_entries select user_id, number, case when number = 1 then 'welcome' else 'spent:quiz' end, -amount from coin_transactions where user_id <> 33;
insert into daily_claims select n, date '2026-06-01', 1, 0, 1 from generate_series(1, 80, 3) n;
insert into coin_rates select n, 2 from generate_series(4, 20, 4) n;
insert into coin_payouts select n, 8, 1, 5, 5, 0, 2 from generate_series(1, 40) n where (n + 24) % 5 > 0;
insert into idempotency_keys (user_id, key_digest, request_digest, claim, claimed_until, status, content_type, body, created_at)
    select n, sha256(n::text::bytea), sha256(n::text::bytea), case when n % 3 = 0 then md5(n::text)::uuid end,
           case when n % 3 = 0 then timestamptz '2026-06-01 00:00+00' end, case when n % 3 > 0 then 201 end, null, null, timestamptz '2026-05-31 00:00+00' + n * interval '1 second'
    from generate_series(1, 80) n;
insert into feeds (name, tournament_id, polled_at, next_poll_at) select 'feed' || n, n, timestamptz '2026-05-25 00:00+00', timestamptz '2026-05-26 00:00+00' from generate_series(1, 3) n;
insert into feed_teams select 'provider', n::text, 'team' || n from generate_series(1, 20) n;
insert into webhook_endpoints (id, url, secret, key_version, types, created_at) overriding system value
    select n, 'https://example.org/' || n, '\x01', 1, '{}', timestamptz '2026-05-25 00:00+00' from generate_series(1, 3) n;
insert into notification_settings select n, n % 2 = 0, null, null, null from generate_series(1, 80, 2) n;
insert into push_subscriptions (user_id, id, endpoint, p256dh, auth, created_at) overriding system value
    select n, n, 'https://push.example/' || n, decode(repeat('04', 65), 'hex'), decode(repeat('05', 16), 'hex'), timestamptz '2026-05-25 00:00+00' from generate_series(1, 80, 2) n;
insert into reminders select n, n % 20 + 1, timestamptz '2026-05-25 00:00+00' + n * interval '1 second' from generate_series(1, 80, 4) n;
insert into reminder_plans select n, timestamptz '2026-06-01 12:00+00' + n * interval '1 hour', 3, null from generate_series(1, 10) n;
insert into operator_actions (id, operator, action, target, reason, details, outcome, created_at) overriding system value
    select n, 'ada', 'report.close', 'report:' || n, 'reason', '{}', 'done', timestamptz '2026-05-25 00:00+00' from generate_series(1, 20) n;
insert into departures (id, user_id, chat_names, chat_rooms, requested_at, devices_due_at, due_at) overriding system value
    select n, n, array['fan' || n], '{}', timestamptz '2026-05-25 00:00+00', timestamptz '2026-05-25 00:00+00', timestamptz '2026-05-25 00:00+00' from generate_series(1, 5) n;
insert into restricted_phones (mac, key_version, user_id, banned_at, banned_until) select sha256(n::text::bytea), 1, n, timestamptz '2026-05-20 00:00+00', timestamptz '2026-05-31 00:00+00' + n * interval '1 second' from generate_series(1, 10) n;
insert into phone_moves (user_id, id, from_phone, language, moved_at, undo_until, undo_hash, notice_due_at) overriding system value
    select n, n, '+1415555' || lpad(n::text, 4, '0'), 'en', timestamptz '2026-05-25 00:00+00', timestamptz '2026-06-01 00:00+00' + n * interval '1 hour', sha256(n::text::bytea), timestamptz '2026-05-25 00:00+00' + n * interval '1 second'
    from generate_series(1, 80, 4) n;
insert into codes (id, subject, phone, block, country, mac, nonce, key_version, network, origin, place, is_limited, created_at, expires_at) overriding system value
    select n, 'login:+1415555' || lpad(n::text, 4, '0'), '+1415555' || lpad(n::text, 4, '0'), '+1415555', 'US', sha256(n::text::bytea), decode(repeat('06', 16), 'hex'), 1,
           '203.0.113.7', '203.0.113.7', sha256(n::text::bytea), false, timestamptz '2026-05-25 00:00+00', timestamptz '2026-06-05 00:00+00' from generate_series(1, 20) n;
insert into code_failures select 'login:+1415555' || lpad(n::text, 4, '0'), n % 2 = 0, 1, timestamptz '2026-05-25 00:00+00' from generate_series(1, 20) n;
insert into phone_verifications select '+1415555' || lpad(n::text, 4, '0'), sha256(n::text::bytea), timestamptz '2026-05-25 00:00+00' from generate_series(1, 20) n;
insert into sms_log (id, code_id, phone, code, status, provider, message_id, created_at, expires_at) overriding system value
    select n, n, '+1415555' || lpad(n::text, 4, '0'), '123456', 'sent', 'twilio', 'm' || n, timestamptz '2026-05-25 00:00+00', timestamptz '2026-06-05 00:00+00' from generate_series(1, 20) n;
insert into sms_closures select '203.0.113.' || n, timestamptz '2026-05-25 00:00+00', timestamptz '2026-06-05 00:00+00', 10, 1, 1, 5 from generate_series(1, 9) n;
insert into outbox (id, key, subject, payload, created_at) overriding system value select n, 'user:' || n, 'fact.event.changed', '{}', timestamptz '2026-05-25 00:00+00' from generate_series(1, 20) n;
insert into score_retention values ('week', 'week:2026-20', 3);
insert into leases select 'lease' || n, md5(n::text)::uuid, timestamptz '2026-05-25 00:00+00', timestamptz '2026-05-26 00:00+00' from generate_series(1, 5) n;
