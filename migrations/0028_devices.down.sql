drop table result_notices;
drop table notification_retries;
drop table notification_batches;
drop table notification_claims;
alter table notification_settings
    drop column moved, drop column result, drop column correction, drop column passed, drop column invitation,
    drop column mention, drop column streak;
drop index push_subscriptions_by_endpoint;
drop table device_tokens;
drop table devices;
