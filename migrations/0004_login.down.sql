drop table sms_closures;
drop table phone_moves;
drop table sms_log;
drop table phone_verifications;
drop table code_failures;
drop table codes;
alter table sessions drop column device_id, drop column proven_at;
drop table phone_claims;
drop table username_claims;
alter table users
    drop column username,
    drop column username_is_generated,
    drop column phone,
    drop column phone_verified_at,
    drop column has_chat_account,
    drop column name,
    drop column email,
    drop column date_of_birth;
