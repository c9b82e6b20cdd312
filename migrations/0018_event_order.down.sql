comment on column events.list_order is null;

create index events_listed on events (phase, list_order, id);
create index events_listed_by_tournament on events (tournament_id, phase, list_order, id);

drop index events_of_tournament_latest;
drop index events_of_tournament;
drop index events_by_status_latest;
drop index events_by_status;
