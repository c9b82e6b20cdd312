-- The top of a tournament's leaderboard before and after a new result of one of its matches. $1 match, $2 the team that
-- advances, $3 the new result counts predictions made before this time, $4 and $5 its score, $6 the last place to list.
-- The view `result_points` has the points of the current result, and explains which content of a prediction counts.
with terms as (
    select 'tournament:' || e.tournament_id as scope, e.result_revision,
           s.outcome, s.difference, s.exact, s.margin_within, s.margin_points, s.stake, s.advances as rule_advances,
           e.is_knockout, e.multiplier
    from events e join rule_sets s on s.id = e.rule_set_id
    where e.id = $1
), moved as (
    select user_id, sum(points) as points
    from (
        select c.user_id,
               prediction_points(
                   row(t.outcome, t.difference, t.exact, t.margin_within, t.margin_points, t.stake, t.rule_advances)::point_rules,
                   row(c.prediction, c.home_goals, c.away_goals, c.confidence, c.advances, c.joker)::forecast,
                   row($4::integer, $5::integer, $2::text, t.is_knockout, t.multiplier)::match_result) as points
        from (
            select p.user_id, case when l.revision is null then p.prediction else l.prediction end as prediction,
                   case when l.revision is null then p.home_goals else l.home_goals end as home_goals,
                   case when l.revision is null then p.away_goals else l.away_goals end as away_goals,
                   case when l.revision is null then p.confidence else l.confidence end as confidence,
                   case when l.revision is null then p.advances else l.advances end as advances,
                   case when l.revision is null then p.joker else l.joker end as joker
            from predictions p
            left join prediction_revisions l
              on l.user_id = p.user_id and l.event_id = $1 and l.event_id = case when p.updated_at >= $3 then p.event_id end
             and l.made_at < $3 and l.replaced_at >= $3
            where p.event_id = $1 and (p.updated_at < $3 or l.revision is not null)
        ) c
        cross join terms t
        where $4::integer is not null
        union all
        select r.user_id, -r.points
        from result_points r join terms t on t.result_revision = r.revision
        where r.event_id = $1
    ) p
    group by user_id
), ranked as (
    select coalesce(s.user_id, m.user_id) as user_id, coalesce(s.points, 0)::bigint as before,
           (coalesce(s.points, 0) + coalesce(m.points, 0))::bigint as after,
           rank() over (order by coalesce(s.points, 0) desc) as rank_before,
           rank() over (order by coalesce(s.points, 0) + coalesce(m.points, 0) desc) as rank_after
    from (select user_id, points from user_scores where scope = (select scope from terms)) s
    full join moved m on m.user_id = s.user_id
)
select r.user_id as "user!: UserId", u.username, r.rank_before as "rank_before!", r.rank_after as "rank_after!",
       r.before as "before!", r.after as "after!"
from ranked r join users u on u.user_id = r.user_id
where r.rank_before <= $6 or r.rank_after <= $6
order by r.rank_after, r.user_id
limit 4 * $6
