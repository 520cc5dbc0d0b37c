-- level_lock: returns the installation's feature level, and lets servers that start wait for the end of the transaction
select feature_level from lakelog.installation for update;

-- level_write: writes the feature level of this database
update lakelog.installation set feature_level = $1;

-- server_list_below: lists live servers that support only lower levels
select address, level from lakelog.server
where level < $1 and seen_at > clock_timestamp() - interval '1 minute' order by address;
