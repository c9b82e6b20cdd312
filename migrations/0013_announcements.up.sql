-- Rooms of matches are told what happens in them, unless somebody does not want that.
alter table rooms add column announces boolean not null default true;
