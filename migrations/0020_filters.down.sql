drop table held_messages, filters;
