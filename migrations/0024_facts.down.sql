drop table facts;
drop table fact_log;
drop table new_facts;
