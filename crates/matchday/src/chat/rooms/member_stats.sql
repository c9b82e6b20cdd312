-- $1 room, $2 its match or null, $3 whether the room is a stand of the match, $4 start of the activity period, $5
-- caller. Members whom the caller has blocked are counted, but not listed among the top predictors.
with places as (
    -- All stands of a match count as one room.
    select id from rooms where id = $1 or ($3 and event_id = $2 and stand is not null)
), members as (
    select user_id, max(active_at) as active_at
    from room_members where room_id in (select id from places) and membership = 'join'
    group by user_id
), strangers as (
    -- Remote members have no account, so they have no team and no predictions. Only their join time is known.
    select matrix_user_id, max(changed_at) as active_at
    from remote_members where room_id in (select id from places) and membership = 'join'
    group by matrix_user_id
), predicted as (
    select m.user_id, p.updated_at as predicted_at
    from members m join predictions p on p.user_id = m.user_id and p.event_id = $2
), favourites as (
    select m.user_id, t.id as team_id, t.slug
    from members m join user_teams f on f.user_id = m.user_id and f.rank = 0 join teams t on t.id = f.team_id
    -- In a match room, a member supports one of the two teams or is neutral.
    where $2::bigint is null or t.id in (select unnest(array[home_team_id, away_team_id]) from events where id = $2)
), sides as (
    select t.slug, (select count(*) from favourites f where f.team_id = t.id) as fans
    from teams t where $2::bigint is not null
      and t.id in (select unnest(array[home_team_id, away_team_id]) from events where id = $2)
    union all
    select slug, count(*) from favourites where $2::bigint is null group by slug
    union all
    select 'neutral', (select count(*) from members) + (select count(*) from strangers) - (select count(*) from favourites)
), records as (
    select m.user_id, s.settled, s.correct
    from members m join user_scores s on s.user_id = m.user_id and s.scope = 'all'
    where s.settled > 0 and not exists (select from blocks b where b.user_id = $5 and b.blocked_id = m.user_id)
), top as (
    select user_id, correct, correct::double precision / settled as accuracy
    from records order by correct desc, accuracy desc, user_id limit 10
)
select (select count(*) from members) + (select count(*) from strangers) as "total_members!",
       (select count(*) from members m left join predicted p on p.user_id = m.user_id
        where greatest(m.active_at, p.predicted_at) >= $4)
       + (select count(*) from strangers where active_at >= $4) as "active_members!",
       (select count(*) from predicted) as "predictions_made!",
       (select jsonb_object_agg(slug, fans) from sides) as "team_distribution!",
       coalesce((select jsonb_agg(jsonb_build_object('user_id', t.user_id, 'username', u.username,
                                                     'correct_predictions', t.correct, 'accuracy', t.accuracy)
                                  order by t.correct desc, t.accuracy desc, t.user_id)
                 from top t join users u on u.user_id = t.user_id), '[]') as "top_predictors!"
