drop index reports_by_sender;
drop table operator_actions;
