-- Actions of operators in the console and on the command line.
--
-- The role of the service can only insert and read, so an operator cannot erase an action. A row refers to a user by id
-- only and holds no other personal data, so it can be kept when the account is deleted.

create table operator_actions (
    id         bigint      generated always as identity primary key,
    -- Row of the started action, if this row records its outcome.
    begun_id   bigint,
    -- Operator, as named by the console's proxy or on the command line.
    operator   text        not null,
    -- Action, as in user.ban.
    action     text        not null,
    -- Target, as in user:12.
    target     text        not null,
    -- The operator's reason in free text.
    reason     text        not null,
    -- Parameters of the action.
    details    jsonb       not null default '{}',
    -- An action that is one transaction is recorded by that transaction. Any other action has one row when it starts
    -- and one when it ends.
    outcome    text        not null,
    -- Request id of the console; null on the command line.
    request_id text,
    created_at timestamptz not null,
    constraint operator_actions_outcome check (outcome in ('done', 'begun', 'failed'))
);
comment on table operator_actions is 'local: append-only, actions of operators, with reasons';
create index operator_actions_by_target on operator_actions (target, id);
create index operator_actions_by_operator on operator_actions (operator, id);
create index operator_actions_by_begun on operator_actions (begun_id) where begun_id is not null;

revoke update, delete on operator_actions from matchday_app;

-- For showing operators the reports about a user.
create index reports_by_sender on reports (sender, id);
