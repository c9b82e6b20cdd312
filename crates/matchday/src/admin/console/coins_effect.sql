-- Effect of a new result on wallets. $1 match, $2 the team that advances, $3 the result counts predictions made before this
-- time, $4 and $5 its score, $6 coins per point. Same rules as `Paid::bring_to` in `coins/rules.rs`, which explains
-- them.
with terms as (
    select s.outcome, s.difference, s.exact, s.margin_within, s.margin_points, s.stake, s.advances as rule_advances,
           e.is_knockout, e.multiplier
    from events e join rule_sets s on s.id = e.rule_set_id
    where e.id = $1
), due as (
    select p.user_id,
           greatest(prediction_points(
               row(t.outcome, t.difference, t.exact, t.margin_within, t.margin_points, t.stake, t.rule_advances)::point_rules,
               row(p.prediction, p.home_goals, p.away_goals, p.confidence, p.advances, p.joker)::forecast,
               row($4::integer, $5::integer, $2::text, t.is_knockout, t.multiplier)::match_result), 0)::bigint * $6::bigint as due
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
    ) p
    cross join terms t
    where $4::integer is not null
), wallet as (
    select w.balance, coalesce(d.due, 0) as due, coalesce(c.had, 0) as had, coalesce(c.written_off, 0) as written_off
    from predictions p
    left join due d on d.user_id = p.user_id
    cross join lateral (
        select (array_agg(had order by revision desc))[1] as had, sum(written_off)::bigint as written_off
        from coin_payouts where user_id = p.user_id and event_id = $1
    ) c
    join wallets w on w.user_id = p.user_id
    where p.event_id = $1
), moved as (
    select case when due > had then least(due - had, 9007199254740991 - balance)
                else -least(greatest(had - written_off - due, 0), balance) end as amount,
           case when due > had then 0
                else greatest(greatest(had - written_off - due, 0) - balance, 0) end as written_off
    from wallet
)
select coalesce(sum(amount) filter (where amount > 0), 0)::bigint as "given!",
       coalesce(-sum(amount) filter (where amount < 0), 0)::bigint as "taken!",
       count(*) filter (where amount > 0) as "gaining!", count(*) filter (where amount < 0) as "losing!",
       coalesce(sum(written_off), 0)::bigint as "written_off!"
from moved
