-- Devices of users, the kinds of notifications they want, and notifications to devices.

create table devices (
    user_id    bigint      not null,
    -- Chosen by the app, once per installation.
    id         text        not null check (id ~ '^[A-Za-z0-9._-]{8,64}$'),
    -- Session that registered the device last. The device ends with it.
    session_id bigint      not null,
    platform   text        not null check (platform in ('fcm', 'apns', 'web')),
    -- Keyed hash of the token, or of the endpoint of a browser, by which the device is found.
    token_hash bytea       not null check (octet_length(token_hash) = 32),
    -- The token, encrypted, and the version of its key.
    ciphertext bytea       not null,
    key_version smallint   not null,
    -- Language tag of the texts.
    locale     text        not null,
    -- Time zone of times in texts, if the app knows it.
    time_zone  text,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (user_id, id),
    unique (user_id, token_hash),
    foreign key (user_id, session_id) references sessions (user_id, id) on delete cascade
);
comment on table devices is 'user: devices that receive notifications; each belongs to a session';
-- For the deletion of a session.
create index devices_by_session on devices (user_id, session_id);

create table device_tokens (
    token_hash bytea       primary key check (octet_length(token_hash) = 32),
    user_id    bigint      not null,
    device_id  text        not null,
    claimed_at timestamptz not null
);
comment on table device_tokens is 'claim: the device that registered a token last; a sweep deletes rows without a device';
-- For account deletions.
create index device_tokens_by_user on device_tokens (user_id);

-- A browser that registers as a device is no push subscription any more, of any user.
create index push_subscriptions_by_endpoint on push_subscriptions (endpoint);

-- Kinds of notifications. `reminders` is the kind `reminder`.
alter table notification_settings
    add column moved      boolean not null default true,
    add column result     boolean not null default true,
    add column correction boolean not null default true,
    add column passed     boolean not null default false,
    add column invitation boolean not null default true,
    add column mention    boolean not null default true,
    add column streak     boolean not null default false;
-- For finding the few users who want these kinds.
create index notification_settings_passed on notification_settings (user_id) where passed;
create index notification_settings_streak on notification_settings (user_id) where streak;

create table notification_claims (
    user_id    bigint      not null,
    kind       text        not null,
    -- Match, league or room.
    subject    text        not null,
    revision   text        not null,
    claimed_at timestamptz not null,
    primary key (user_id, kind, subject, revision)
);
comment on table notification_claims is 'user: notifications to devices; written before they are sent, swept after a month';
create index notification_claims_by_time on notification_claims (claimed_at);

-- A row for each of a million users with a prediction would cost more than sending. Claims of these users are ranges.
create table notification_batches (
    event_id      bigint      not null,
    -- Kind of fact, and what distinguishes it from others of the same match.
    topic         text        not null,
    -- Range of users of the batch: after the first, up to the second.
    after_user    bigint      not null,
    until_user    bigint      not null,
    -- Notifications of users up to this one are claimed.
    claimed_until bigint      not null,
    created_at    timestamptz not null,
    primary key (event_id, topic, after_user)
    -- Leaves room on each page for HOT updates.
) with (fillfactor = 50);
comment on table notification_batches is 'local: batches of users who are notified of a fact about a match; swept after a month';
create index notification_batches_by_time on notification_batches (created_at);

create table notification_retries (
    user_id      bigint      not null,
    -- Made from the claim and the device.
    id           uuid        not null,
    device_id    text        not null,
    notification jsonb       not null,
    -- Number of attempts so far.
    attempts     integer     not null,
    due_at       timestamptz not null,
    expires_at   timestamptz not null,
    primary key (user_id, id)
);
comment on table notification_retries is 'user: notifications that a push provider postponed; each is deleted before its next attempt';
create index notification_retries_by_time on notification_retries (due_at);

create table result_notices (
    event_id          bigint      primary key references events,
    -- Latest result of which users are notified, and since when.
    revision          bigint      not null,
    begun_at          timestamptz not null,
    -- Latest result whose notifications are all planned, and the one of this kind before `revision`; 0 for none.
    planned_revision  bigint      not null,
    previous_revision bigint      not null,
    -- Whether there was a result between these two, of which an unknown part of the users was notified.
    follows_cut_off   boolean     not null
);
comment on table result_notices is 'reference: results of matches of which users are notified';
