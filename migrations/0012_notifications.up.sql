-- Reminders: who wants them, where they are sent, and who has had one.

create table notification_settings (
    user_id     bigint   primary key references users,
    reminders   boolean  not null,
    -- In which nothing is sent: minutes of the day, from one up to the other, over midnight if the first is later.
    quiet_from  smallint check (quiet_from between 0 and 1439),
    quiet_until smallint check (quiet_until between 0 and 1439),
    -- By whose clock, as in Europe/Berlin.
    time_zone   text,
    constraint notification_settings_quiet_hours check (
        (quiet_from is null) = (quiet_until is null) and (quiet_from is null) = (time_zone is null)
        and quiet_from is distinct from quiet_until or quiet_from is null)
);
comment on table notification_settings is 'user: what people want to be notified of, and when not; without a row it is everything, at any time';

create table push_subscriptions (
    user_id    bigint      not null references users,
    -- What the owner removes it by.
    id         bigint      generated always as identity,
    -- Where the browser's push service takes messages for it.
    endpoint   text        not null check (length(endpoint) <= 1000),
    -- What messages are encrypted with, as the browser gave them: a point of P-256, and a secret.
    p256dh     bytea       not null check (octet_length(p256dh) = 65),
    auth       bytea       not null check (octet_length(auth) = 16),
    created_at timestamptz not null,
    primary key (user_id, id),
    unique (user_id, endpoint)
);
comment on table push_subscriptions is 'user: browsers that are notified';

create table reminders (
    user_id    bigint      not null,
    event_id   bigint      not null,
    claimed_at timestamptz not null,
    primary key (user_id, event_id)
);
comment on table reminders is 'user: who has had a reminder of which match; written before it is sent, swept after a month';
create index reminders_by_time on reminders (claimed_at);

create table reminder_plans (
    event_id      bigint      primary key references events,
    -- For which kick-off. When that is moved, the match is planned anew.
    start_time    timestamptz not null,
    -- The fans up to this user are on the queue.
    planned_up_to bigint      not null,
    finished_at   timestamptz
);
comment on table reminder_plans is 'reference: how far the fans of a match that is about to begin are on the queue';

-- The fans of a team in their order.
create index user_teams_by_team on user_teams (team_id, user_id);
