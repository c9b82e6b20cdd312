-- Effect of another rule set on the points of a tournament, if all of its results had counted under it. $1 tournament,
-- $2 rule set, $3 number of users to list. A stage without a multiplier in the rule set keeps the multiplier of the match.
-- The view `result_points` explains which content of a prediction counts.
with results as (
    select r.event_id, r.home_score, r.away_score, r.advanced, r.is_knockout, r.multiplier,
           coalesce((n.multipliers->>e.stage)::smallint, r.multiplier) as new_multiplier,
           least(r.start_time, r.recorded_at) as counts_before,
           s.outcome, s.difference, s.exact, s.margin_within, s.margin_points, s.stake, s.advances as rule_advances,
           n.outcome as new_outcome, n.difference as new_difference, n.exact as new_exact,
           n.margin_within as new_within, n.margin_points as new_margin, n.stake as new_stake, n.advances as new_advances
    from events e
    join event_results r on r.event_id = e.id and r.revision = e.result_revision and r.home_score is not null
    join rule_sets s on s.id = e.rule_set_id
    join rule_sets n on n.id = $2
    where e.tournament_id = $1
), judged as materialized (
    select c.user_id,
           sum(prediction_points(
               row(c.outcome, c.difference, c.exact, c.margin_within, c.margin_points, c.stake, c.rule_advances)::point_rules,
               row(c.prediction, c.home_goals, c.away_goals, c.confidence, c.advances, c.joker)::forecast,
               row(c.home_score, c.away_score, c.advanced, c.is_knockout, c.multiplier)::match_result)) as before,
           sum(prediction_points(
               row(c.new_outcome, c.new_difference, c.new_exact, c.new_within, c.new_margin, c.new_stake, c.new_advances)::point_rules,
               row(c.prediction, c.home_goals, c.away_goals, c.confidence, c.advances, c.joker)::forecast,
               row(c.home_score, c.away_score, c.advanced, c.is_knockout, c.new_multiplier)::match_result)) as after
    from (
        select t.*, p.user_id,
               case when l.revision is null then p.prediction else l.prediction end as prediction,
               case when l.revision is null then p.home_goals else l.home_goals end as home_goals,
               case when l.revision is null then p.away_goals else l.away_goals end as away_goals,
               case when l.revision is null then p.confidence else l.confidence end as confidence,
               case when l.revision is null then p.advances else l.advances end as advances,
               case when l.revision is null then p.joker else l.joker end as joker
        from results t
        join predictions p on p.event_id = t.event_id
        left join prediction_revisions l
          on l.user_id = p.user_id and l.event_id = t.event_id
         and l.event_id = case when p.updated_at >= t.counts_before then p.event_id end
         and l.made_at < t.counts_before and l.replaced_at >= t.counts_before
        where p.updated_at < t.counts_before or l.revision is not null
    ) c
    group by c.user_id
), ranked as materialized (
    select user_id, before, after, rank() over (order by before desc) as rank_before, rank() over (order by after desc) as rank_after
    from judged
)
select 0 as "kind!", null::bigint as "user_id: UserId", null::text as username, coalesce(sum(before), 0)::bigint as "before!",
       coalesce(sum(after), 0)::bigint as "after!", count(*) as "users!",
       count(*) filter (where rank_after <> rank_before) as "moved!"
from ranked
union all
select r.rank_after::integer, r.user_id, u.username, r.before, r.after, r.rank_before, 0
from (select * from ranked order by rank_after, user_id limit $3) r join users u on u.user_id = r.user_id
