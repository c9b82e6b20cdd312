-- For listing closed reports, most recently closed first, for the times to resolution, and for the sweep.
create index reports_closed on reports (closed_at desc, id desc) where closed_at is not null;
