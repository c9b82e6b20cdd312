alter table rooms drop column announces;
