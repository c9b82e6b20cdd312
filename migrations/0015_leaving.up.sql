-- Leaving: what is left of an account when its person goes.

-- Since when nobody is behind the account. Its row stays, without anything that says who it was: predictions and coins keep
-- a number to belong to.
alter table users add column deleted_at timestamptz;

create table departures (
    id           bigint      generated always as identity primary key,
    user_id      bigint      not null,
    -- What chat knew the person by.
    chat_names   text[]      not null,
    requested_at timestamptz not null,
    -- When somebody looks after it next. Everything that was under way has ended by then.
    due_at       timestamptz not null,
    attempts     integer     not null default 0,
    -- Why it is not finished yet.
    fault        text
);
comment on table departures is 'queue: accounts that were deleted, until chat has forgotten them too';
create index departures_due on departures (due_at, id);
