-- For listing closed reports in the console, most recently closed first.
create index reports_closed on reports (closed_at desc, id desc) where closed_at is not null;
