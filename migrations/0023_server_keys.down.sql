alter table operator_actions drop constraint operator_actions_key, drop column key_id, drop column scope;
drop table server_keys;
