-- The row of an avatar exists before its first image is stored and until the last one is deleted, so the service can find
-- all images that it must delete without listing the object store.
create table avatars (
    -- Random, and part of the URL.
    avatar_key  text        primary key,
    user_id     bigint      not null,
    uploaded_at timestamptz not null,
    -- Time from which a worker deletes the images. Null while the avatar is the user's: only then is it served.
    delete_at   timestamptz,
    constraint avatars_key check (avatar_key ~ '^[a-z0-9]{32}$')
);
comment on table avatars is 'claim: names of avatars whose images are stored, are being stored, or must be deleted';
create index avatars_by_user on avatars (user_id);
create index avatars_to_delete on avatars (delete_at) where delete_at is not null;
