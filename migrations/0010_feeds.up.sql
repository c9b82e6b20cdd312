-- State of the feeds that matches are imported from.

create table feeds (
    -- Name, as in football_data:PL.
    name          text        primary key,
    -- Tournament of the latest document. Its matches determine the time of the next poll.
    tournament_id bigint      references tournaments,
    -- Validators of the latest imported document, so an unchanged one is not parsed. They are valid only while
    -- documents are parsed in the same way, which `basis` identifies.
    basis         text        not null default '',
    etag          text,
    digest        bytea       check (octet_length(digest) = 32),
    -- Times of the last poll, success, change and failure, and the last error.
    polled_at     timestamptz not null,
    succeeded_at  timestamptz,
    changed_at    timestamptz,
    failed_at     timestamptz,
    error         text,
    -- Number of consecutive failures; pauses grow with it.
    failures      integer     not null default 0,
    next_poll_at  timestamptz not null
);
comment on table feeds is 'local: state of the feeds that matches are imported from';

create table feed_teams (
    -- Provider, as in football_data. All feeds of a provider share its team ids.
    provider    text not null,
    external_id text not null,
    -- Slug of the team in this service. It is unchanged when the provider renames the team.
    slug        text not null,
    primary key (provider, external_id),
    unique (provider, slug)
);
comment on table feed_teams is 'local: teams by the ids of a provider';
