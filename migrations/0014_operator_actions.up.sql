-- What operators did, through the console and on the command line.
--
-- The role that the service runs with can add to it and read it, nothing else: who did something cannot make it undone. A
-- row names whom it was done to by id, and holds nothing else of them, so that it can stay when an account goes.

create table operator_actions (
    id         bigint      generated always as identity primary key,
    -- What was begun, where this row says how it ended.
    begun_id   bigint,
    -- Who, as the proxy before the console or the command line says.
    operator   text        not null,
    -- As in user.ban.
    action     text        not null,
    -- To what, as in user:12.
    target     text        not null,
    -- Why, in their own words.
    reason     text        not null,
    -- What exactly, where the action alone does not tell.
    details    jsonb       not null default '{}',
    -- What is one transaction is written in it, when it is done. All else has a row before it, and one after it.
    outcome    text        not null,
    -- The console's request; null on the command line.
    request_id text,
    created_at timestamptz not null,
    constraint operator_actions_outcome check (outcome in ('done', 'begun', 'failed'))
);
comment on table operator_actions is 'reference: append-only, what operators did, and why';
create index operator_actions_by_target on operator_actions (target, id);
create index operator_actions_by_operator on operator_actions (operator, id);
create index operator_actions_by_begun on operator_actions (begun_id) where begun_id is not null;

revoke update, delete on operator_actions from matchday_app;

-- Serves showing an operator what was reported of somebody.
create index reports_by_sender on reports (sender, id);
