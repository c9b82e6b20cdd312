-- Logging in by phone: who an account is, which names and numbers are taken, and the codes that prove a number.

alter table users
    add column username text,
    -- A username that was chosen stays; one that was made up can be replaced once.
    add column username_is_generated boolean not null default true,
    -- Accounts that a developer made have none.
    add column phone text,
    add column phone_verified_at timestamptz,
    -- Whether the homeserver's account of that name was made by us. Another one's is not given to anybody.
    add column has_chat_account boolean not null default false,
    add column name text,
    add column email text,
    add column date_of_birth date;
update users set username = 'fan' || user_id;
alter table users alter column username set not null;

create table username_claims (
    username   text        primary key,
    user_id    bigint      not null,
    claimed_at timestamptz not null
);
comment on table username_claims is 'claim: every username there is or ever was; none is given to somebody else again';
insert into username_claims (username, user_id, claimed_at) select username, user_id, created_at from users;

create table phone_claims (
    phone      text        primary key,
    user_id    bigint      not null,
    claimed_at timestamptz not null
);
comment on table phone_claims is 'claim: whose account a phone number logs in to';

-- The chat device that belongs to the session. Both end together.
alter table sessions add column device_id text;
-- When its holder last proved to have the account's phone, if that was after the login.
alter table sessions add column proven_at timestamptz;

create table codes (
    id            bigint      generated always as identity primary key,
    -- What the code is for: login:+14155550100, or verify:42 where user 42 proves a number. The newest code of a
    -- subject is the one that counts.
    subject       text        not null,
    phone         text        not null,
    -- The number without its last four digits, and its country: fraud shows in them.
    block         text        not null,
    country       text        not null,
    -- HMAC-SHA256 of subject, phone, nonce and code, under the key of this version. The key is not in the database.
    mac           bytea       not null check (octet_length(mac) = 32),
    nonce         bytea       not null check (octet_length(nonce) = 16),
    key_version   smallint    not null,
    -- Who asked for it. They have guesses of their own, so that nobody else can use them up.
    network       text        not null,
    -- What a customer of a provider may hold: an IPv4 address, or a /48 of IPv6. Fraud is judged by it.
    origin        text        not null,
    -- Keyed hash of phone and neighbourhood, see phone_verifications.
    place         bytea       not null,
    -- Sent while a shared limit was used up, because the phone had verified before.
    is_limited    boolean     not null,
    own_guesses   smallint    not null default 0,
    other_guesses smallint    not null default 0,
    created_at    timestamptz not null,
    expires_at    timestamptz not null,
    consumed_at   timestamptz
);
comment on table codes is 'timed: codes that were sent; swept a day after they were made';
create index codes_by_subject on codes (subject, id);
create index codes_by_time on codes (created_at);

create table code_failures (
    -- As in codes.
    subject        text        not null,
    -- Guesses from the network that had asked for the code, or from all others.
    own            boolean     not null,
    -- In a row: a right code ends the row, a new code does not.
    failures       integer     not null,
    last_failed_at timestamptz not null,
    primary key (subject, own)
);
comment on table code_failures is 'timed: wrong guesses in a row; swept a month after the last';
create index code_failures_by_time on code_failures (last_failed_at);

create table phone_verifications (
    phone       text        not null,
    -- Keyed hash of the phone and of the part of the internet (IPv4 /16, IPv6 /32) that it verified from; empty where
    -- that is not known.
    place       bytea       not null,
    verified_at timestamptz not null,
    primary key (phone, place)
);
comment on table phone_verifications is 'timed: phones that have verified a code, and from around where: strangers cannot use up their limits; swept 400 days after the last time';
create index phone_verifications_by_time on phone_verifications (verified_at);

create table sms_log (
    id         bigint      generated always as identity primary key,
    code_id    bigint      not null,
    phone      text        not null,
    -- Written outside production only.
    code       text,
    -- The text of a message without a code; empty in production.
    notice     text,
    status     text        not null check (status in ('sent', 'failed')),
    provider   text        not null,
    -- What the provider calls the message, to ask it about.
    message_id text,
    error      text,
    -- How often the code was tried; written when the code is swept, and counted there until then.
    attempts   integer,
    -- When the provider reported that it arrived.
    delivered_at timestamptz,
    created_at timestamptz not null,
    expires_at timestamptz not null
);
comment on table sms_log is 'timed: messages handed to providers; swept by age';
create index sms_log_by_phone on sms_log (phone, id);
create index sms_log_by_time on sms_log (created_at);
-- Providers name the code in their reports.
create index sms_log_by_code on sms_log (code_id);

create table phone_moves (
    user_id       bigint      not null references users,
    id            bigint      generated always as identity,
    -- The phone that the account has left. It gets a text with a code that undoes the move.
    from_phone    text        not null,
    language      text        not null,
    moved_at      timestamptz not null,
    undo_until    timestamptz not null,
    -- SHA-256 of that code, once it was sent.
    undo_hash     bytea       check (octet_length(undo_hash) = 32),
    -- When the text is to be sent; null once it was.
    notice_due_at timestamptz,
    attempts      smallint    not null default 0,
    -- Also of moves that were made before or after the one that was undone.
    undone_at     timestamptz,
    primary key (user_id, id)
);
comment on table phone_moves is 'user: accounts that moved to another phone, as long as that can be undone; swept afterwards';
create index phone_moves_by_notice on phone_moves (notice_due_at) where notice_due_at is not null;
create index phone_moves_by_time on phone_moves (undo_until);

create table sms_closures (
    -- A network like 203.0.113.7, a block of numbers like +44207946, or a country like GB.
    prefix       text        primary key,
    closed_at    timestamptz not null,
    closed_until timestamptz not null,
    -- What it was closed for.
    phones       bigint      not null,
    verified     bigint      not null,
    -- Which closure in a row it is; each is longer and stricter than the one before.
    level        smallint    not null,
    -- How many codes an hour phones that have not verified before still get.
    hourly       integer     not null
);
comment on table sms_closures is 'reference: networks, blocks and countries that get few codes, because too few of them came back';
