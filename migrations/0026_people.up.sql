-- Avatars, privacy settings and follows.

alter table users
    -- Random name of the avatar's images, part of its URL. Null without an avatar.
    add column avatar_key text,
    -- Whether other users see the name.
    add column shows_name boolean not null default true,
    -- Users who see these parts of the profile: everyone, following (users whom the owner follows) or nobody.
    add column teams_audience text not null default 'everyone',
    add column record_audience text not null default 'everyone',
    add column calibration_audience text not null default 'nobody';
-- Separate statements, because Citus adds no column together with a constraint.
alter table users add constraint users_avatar_key check (avatar_key ~ '^[a-z0-9]{32}$');
alter table users add constraint users_audiences check (
    teams_audience in ('everyone', 'following', 'nobody')
    and record_audience in ('everyone', 'following', 'nobody')
    and calibration_audience in ('everyone', 'following', 'nobody')
);

-- Every follow is a row in both tables: each list of a user is then on the user's shard. A writer holds the lock of the
-- follower's account, and writes both.
create table follows (
    user_id     bigint      not null references users,
    followed_id bigint      not null,
    followed_at timestamptz not null,
    primary key (user_id, followed_id),
    constraint follows_somebody_else check (user_id <> followed_id)
);
comment on table follows is 'user: users whom a user follows';
create index follows_by_time on follows (user_id, followed_at, followed_id);

-- Neither this table nor the counts refer to users: checking the reference would lock the row of a popular user for each
-- of the followers.
create table followers (
    user_id     bigint      not null,
    follower_id bigint      not null,
    followed_at timestamptz not null,
    primary key (user_id, follower_id)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);
comment on table followers is 'user: users who follow a user, the other side of follows';
create index followers_by_time on followers (user_id, followed_at, follower_id);

create table follow_counts (
    user_id   bigint   not null,
    -- The id of the follower determines the slot, so many users can follow the same user at the same time. Reads add the
    -- slots up.
    slot      smallint not null,
    followers bigint   not null default 0 check (followers >= 0),
    -- Number of users whom the user follows. Slot 0 has it.
    following bigint   not null default 0 check (following >= 0),
    -- Grows with each change of the list of users whom the user follows. Slot 0 has it.
    following_version bigint not null default 0,
    primary key (user_id, slot)
    -- Leaves room on each page for HOT updates.
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
comment on table follow_counts is 'user: numbers of follows and followers of users, in slots';
