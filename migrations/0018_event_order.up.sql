-- The event list reads each status by start time, ascending or descending, and merges the results. Whether a match is
-- upcoming depends on the time, so no stored column can hold the order.
create index events_by_status on events (status, start_time, id);
create index events_by_status_latest on events (status, start_time desc, id);
create index events_of_tournament on events (tournament_id, status, start_time, id);
create index events_of_tournament_latest on events (tournament_id, status, start_time desc, id);

drop index events_listed;
drop index events_listed_by_tournament;

-- The previous version still orders its list by this column. Drop it, with the last two indexes that include it, when
-- no process of that version is left.
comment on column events.list_order is 'unused';
