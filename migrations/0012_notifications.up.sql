-- Reminders: settings of users, push subscriptions, and sent reminders.

create table notification_settings (
    user_id     bigint   primary key references users,
    reminders   boolean  not null,
    -- Quiet hours without notifications, in minutes of the day; they span midnight if the start is later than the end.
    quiet_from  smallint check (quiet_from between 0 and 1439),
    quiet_until smallint check (quiet_until between 0 and 1439),
    -- Time zone of the quiet hours, as in Europe/Berlin.
    time_zone   text,
    constraint notification_settings_quiet_hours check (
        (quiet_from is null) = (quiet_until is null) and (quiet_from is null) = (time_zone is null)
        and quiet_from is distinct from quiet_until or quiet_from is null)
);
comment on table notification_settings is 'user: settings and quiet hours; without a row, all are sent at any time';

create table push_subscriptions (
    user_id    bigint      not null references users,
    -- The user removes the subscription by this id.
    id         bigint      generated always as identity,
    -- URL at which the browser's push service accepts messages.
    endpoint   text        not null check (length(endpoint) <= 1000),
    -- Encryption keys provided by the browser: a point on P-256, and a secret.
    p256dh     bytea       not null check (octet_length(p256dh) = 65),
    auth       bytea       not null check (octet_length(auth) = 16),
    created_at timestamptz not null,
    primary key (user_id, id),
    unique (user_id, endpoint)
);
comment on table push_subscriptions is 'user: push subscriptions of browsers';

create table reminders (
    user_id    bigint      not null,
    event_id   bigint      not null,
    claimed_at timestamptz not null,
    primary key (user_id, event_id)
);
comment on table reminders is 'user: reminders by match; written before they are sent, swept after a month';
create index reminders_by_time on reminders (claimed_at);

create table reminder_plans (
    event_id      bigint      primary key references events,
    -- Kick-off for which reminders were planned. If it changes, they are planned again.
    start_time    timestamptz not null,
    -- Reminders of fans up to this user id are on the queue.
    planned_up_to bigint      not null,
    finished_at   timestamptz
);
comment on table reminder_plans is 'reference: progress of queueing the reminders of a match';

-- For reading the fans of a team in order.
create index user_teams_by_team on user_teams (team_id, user_id);
