-- Where matches come from by themselves, and how that goes.

create table feeds (
    -- As in football_data:PL.
    name          text        primary key,
    -- The tournament of its latest document: its matches decide when to look again.
    tournament_id bigint      references tournaments,
    -- What the latest document that was imported looked like, so that one that did not change is not even read. Both mean
    -- something only as long as documents are read in the same way, which `basis` names.
    basis         text        not null default '',
    etag          text,
    digest        bytea       check (octet_length(digest) = 32),
    -- When it was looked at, when that went well, when that brought something new, when it failed and why.
    polled_at     timestamptz not null,
    succeeded_at  timestamptz,
    changed_at    timestamptz,
    failed_at     timestamptz,
    error         text,
    -- How many times in a row it failed; pauses grow with it.
    failures      integer     not null default 0,
    next_poll_at  timestamptz not null
);
comment on table feeds is 'reference: where matches come from by themselves, and how that goes';

create table feed_teams (
    -- As in football_data: all feeds of a provider mean the same teams by the same ids.
    provider    text not null,
    external_id text not null,
    -- The team here. It stays when the provider calls the team something else.
    slug        text not null,
    primary key (provider, external_id),
    unique (provider, slug)
);
comment on table feed_teams is 'reference: which team a provider means by its id';
