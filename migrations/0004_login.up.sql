-- Login by phone: accounts, claimed usernames and phone numbers, and login codes.

alter table users
    add column username text,
    -- A chosen username is permanent; a generated one can be replaced once.
    add column username_is_generated boolean not null default true,
    -- Null for accounts created by development tools.
    add column phone text,
    add column phone_verified_at timestamptz,
    -- Whether this service created the homeserver account with this username. Accounts of other origin are never used.
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
comment on table username_claims is 'claim: all current and former usernames; none is ever reassigned';
-- For account deletions and exports.
create index username_claims_by_user on username_claims (user_id);
insert into username_claims (username, user_id, claimed_at) select username, user_id, created_at from users;

create table phone_claims (
    phone      text        primary key,
    user_id    bigint      not null,
    claimed_at timestamptz not null
);
comment on table phone_claims is 'claim: account that a phone number logs in to';
-- For account deletions and exports.
create index phone_claims_by_user on phone_claims (user_id);

-- Chat device of the session. Both end together.
alter table sessions add column device_id text;
-- Time at which the user last verified the account's phone in this session, if that was after the login.
alter table sessions add column proven_at timestamptz;

create table codes (
    id            bigint      generated always as identity primary key,
    -- Purpose of the code: login:+14155550100, or for user 42 verify:42 (a phone), leave:42 (account deletion) or keys:42
    -- (new chat keys). Only the newest code of a subject is valid.
    subject       text        not null,
    phone         text        not null,
    -- The number without its last four digits, and its country. Fraud detection counts by both.
    block         text        not null,
    country       text        not null,
    -- HMAC-SHA256 of subject, phone, nonce and code with the key of this version. The key is not in the database.
    mac           bytea       not null check (octet_length(mac) = 32),
    nonce         bytea       not null check (octet_length(nonce) = 16),
    key_version   smallint    not null,
    -- Network that requested the code. Its guesses are counted separately, so other networks cannot use them up.
    network       text        not null,
    -- Network assigned to one customer of a provider: an IPv4 address, or a /48 of IPv6. Fraud detection counts by it.
    origin        text        not null,
    -- Keyed hash of phone and neighbourhood, see phone_verifications.
    place         bytea       not null,
    -- Sent although a shared limit was used up, because the phone had been verified before.
    is_limited    boolean     not null,
    own_guesses   smallint    not null default 0,
    other_guesses smallint    not null default 0,
    created_at    timestamptz not null,
    expires_at    timestamptz not null,
    consumed_at   timestamptz
);
comment on table codes is 'timed: codes that were sent; swept a day after their creation';
create index codes_by_subject on codes (subject, id);
create index codes_by_time on codes (created_at);
-- For account deletions and exports.
create index codes_by_phone on codes (phone);

create table code_failures (
    -- Same format as codes.subject.
    subject        text        not null,
    -- True for guesses from the network that requested the code, false for all others.
    own            boolean     not null,
    -- Consecutive failures: a correct code resets the count, a new code does not.
    failures       integer     not null,
    last_failed_at timestamptz not null,
    primary key (subject, own)
);
comment on table code_failures is 'timed: consecutive wrong guesses; swept a month after the last';
create index code_failures_by_time on code_failures (last_failed_at);

create table phone_verifications (
    phone       text        not null,
    -- Keyed hash of the phone and of the network (IPv4 /16, IPv6 /32) that it was verified from; empty if unknown.
    place       bytea       not null,
    verified_at timestamptz not null,
    primary key (phone, place)
);
comment on table phone_verifications is
    'timed: verified phones by network; others cannot use up their limits; swept 400 days after the last verification';
create index phone_verifications_by_time on phone_verifications (verified_at);

create table sms_log (
    id         bigint      generated always as identity primary key,
    code_id    bigint      not null,
    phone      text        not null,
    -- Stored outside production only.
    code       text,
    -- Text of a message without a code; empty in production.
    notice     text,
    status     text        not null check (status in ('sent', 'failed')),
    provider   text        not null,
    -- The provider's id of the message, for inquiries.
    message_id text,
    error      text,
    -- Number of guesses of the code. Copied from the code when it is swept.
    attempts   integer,
    -- Time of delivery reported by the provider.
    delivered_at timestamptz,
    created_at timestamptz not null,
    expires_at timestamptz not null
);
comment on table sms_log is 'timed: messages sent to SMS providers; swept by age';
create index sms_log_by_phone on sms_log (phone, id);
create index sms_log_by_time on sms_log (created_at);
-- For delivery reports, which refer to the code.
create index sms_log_by_code on sms_log (code_id);

create table phone_moves (
    user_id       bigint      not null references users,
    id            bigint      generated always as identity,
    -- Previous phone of the account. It receives a message with a code that undoes the move.
    from_phone    text        not null,
    language      text        not null,
    moved_at      timestamptz not null,
    undo_until    timestamptz not null,
    -- SHA-256 of that code, after it was sent.
    undo_hash     bytea       check (octet_length(undo_hash) = 32),
    -- Time at which the message must be sent; null after it was sent.
    notice_due_at timestamptz,
    attempts      smallint    not null default 0,
    -- Undoing one move sets this for all moves of the account.
    undone_at     timestamptz,
    primary key (user_id, id)
);
comment on table phone_moves is 'user: moves of accounts to another phone that can still be undone; swept afterwards';
create index phone_moves_by_notice on phone_moves (notice_due_at) where notice_due_at is not null;
create index phone_moves_by_time on phone_moves (undo_until);

create table sms_closures (
    -- A network like 203.0.113.7, a number block like +44207946, or a country like GB.
    prefix       text        primary key,
    closed_at    timestamptz not null,
    closed_until timestamptz not null,
    -- Counts that caused the limit.
    phones       bigint      not null,
    verified     bigint      not null,
    -- Number of consecutive limits; each is longer and stricter than the previous one.
    level        smallint    not null,
    -- Codes per hour for phones that were not verified before.
    hourly       integer     not null
);
comment on table sms_closures is
    'local: limits on networks, number blocks and countries with too few verified codes';
