drop table mention_pushers;
