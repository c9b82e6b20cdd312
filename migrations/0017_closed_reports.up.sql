-- Serves listing closed reports in the console, the last closed first.
create index reports_closed on reports (closed_at desc, id desc) where closed_at is not null;
