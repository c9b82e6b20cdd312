drop table predictions;
