-- What users predict of matches.

create table predictions (
    user_id    bigint      not null references users,
    event_id   bigint      not null references events,
    -- What lists are ordered by. It stays when the prediction is replaced.
    id         bigint      not null generated always as identity,
    -- Who wins.
    prediction text        not null,
    -- The score, if the user ventured one.
    home_goals smallint,
    away_goals smallint,
    -- How sure the user is, in percent.
    confidence smallint    not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (user_id, event_id),
    constraint predictions_prediction check (prediction in ('home', 'draw', 'away')),
    constraint predictions_goals check (home_goals between 0 and 99 and away_goals between 0 and 99),
    constraint predictions_score check ((home_goals is null) = (away_goals is null)),
    constraint predictions_agree check (home_goals is null or prediction =
        case when home_goals > away_goals then 'home' when home_goals < away_goals then 'away' else 'draw' end),
    constraint predictions_confidence check (confidence between 0 and 100)
);
comment on table predictions is 'user: what a user predicts of a match, at most once a match';
-- Serves reading all predictions of a match, page by page.
create index predictions_by_event on predictions (event_id, id);
