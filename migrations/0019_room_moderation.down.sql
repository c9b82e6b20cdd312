drop table removals, slow_mode_turns, room_mutes, room_moderators;
alter table rooms drop column slow_mode_seconds, drop column powers_version, drop column powers_applied;
