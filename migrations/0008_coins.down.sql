alter table score_lanes drop column paid_revision;
drop table coin_payouts;
drop table coin_rates;
drop table daily_claims;
drop table coin_entries;
drop table coin_transactions;
drop table wallets;
