"""Plays a season and prints, as one JSON object, its fixture documents, the predictions of its fans, and the tables
that must be the result.

Usage: season.py NAME FANS SEED, where NAME is world_cup, league or basketball. The same arguments give the same output.

This script is the second, independent calculation of points: it follows the written rules and shares no code with the
service. A test imports the documents in order, submits the predictions after the first one, and compares the tables.
"""

import collections
import datetime
import json
import random
import sys
from fractions import Fraction

DEFAULT_RULES = {"outcome": 20, "difference": 30, "exact": 40, "margin": None, "stake": 20, "advances": 10,
                 "multiplier": {}, "joker": 0}
CUP = {"multiplier": {"round_of_16": 1.5, "quarter_final": 2, "semi_final": 2, "final": 3}, "joker": 2}
HOOPS = {"outcome": 20, "difference": 30, "exact": 40, "margin": {"within": 5, "points": 25}, "stake": 10,
         "advances": 15, "multiplier": {"final": 1.5}, "joker": 3}
VOID = {"abandoned", "cancelled", "awarded"}
OTHER_SIDE = {"home": "away", "away": "home"}
FIRST_DAY = datetime.datetime(2101, 1, 1, 12)


def rounded(numerator, denominator):
    """Rounds a fraction to the nearest integer, halves away from zero. Integers only, so the result is exact."""
    size = (2 * abs(numerator) + denominator) // (2 * denominator)
    return size if numerator >= 0 else -size


def outcome(home, away):
    """Returns the side that won, or `draw`."""
    return "home" if home > away else "away" if away > home else "draw"


def is_exact(score, result):
    return score is not None and score["home"] == result["home"] and score["away"] == result["away"]


def base_points(rules, pick, score, result):
    """Returns the points for outcome and score: the best of the values that the prediction reached."""
    if pick != outcome(result["home"], result["away"]):
        return 0
    reached = [rules["outcome"]]
    # Every correctly predicted draw has the right difference, so difference and margin count only for wins.
    if score is not None and pick != "draw":
        miss = abs((score["home"] - score["away"]) - (result["home"] - result["away"]))
        if rules["margin"] and miss <= rules["margin"]["within"]:
            reached.append(rules["margin"]["points"])
        if miss == 0:
            reached.append(rules["difference"])
    if is_exact(score, result):
        reached.append(rules["exact"])
    return max(reached)


def points(rules, multiplier, is_knockout, prediction, result):
    """Returns the points of a prediction. `result` has `home`, `away` and `advanced`; `multiplier` is an integer or a
    fraction."""
    pick, confidence = prediction["prediction"], prediction["confidence"]
    # With q = confidence / 100, the stake is s·(2q − q²) or −s·q², here in ten-thousandths.
    if pick == outcome(result["home"], result["away"]):
        stake = rounded(rules["stake"] * (200 * confidence - confidence**2), 10_000)
    else:
        stake = -rounded(rules["stake"] * confidence**2, 10_000)
    advances = 0
    if is_knockout and prediction["advances"] is not None and prediction["advances"] == result["advanced"]:
        advances = rules["advances"]
    total = base_points(rules, pick, prediction["score_prediction"], result) + stake + advances
    return rounded(total * multiplier.numerator * (2 if prediction["joker"] else 1), multiplier.denominator)


def check_points():
    """Compares `points` with the worked examples of the rules."""
    default, hoops, half = DEFAULT_RULES, HOOPS, Fraction("1.5")
    for rules, predicted, confidence, advances, joker, score, advanced, multiplier, expected in [
        (default, "home 2:1", 75, None, False, "2:1", None, 1, 59),
        (default, "home 2:1", 75, None, False, "1:0", None, 1, 49),
        (default, "home 2:1", 75, None, False, "1:1", None, 1, -11),
        (default, "draw 1:1", 50, "home", False, "1:1", "home", 1, 65),
        (default, "draw 1:1", 50, "away", False, "1:1", "home", 1, 55),
        (default, "home 2:1", 60, "home", False, "1:1", "home", 1, 3),
        (default, "home", 0, None, False, "2:0", "home", 1, 20),
        (default, "home", 0, "away", False, "2:0", "away", 1, 30),
        (default, "home 2:1", 75, None, False, "2:1", None, half, 89),
        (default, "home 2:1", 75, None, False, "1:1", None, half, -17),
        (default, "draw 1:1", 50, "home", False, "1:1", "home", 3, 195),
        (default, "home 2:1", 75, None, True, "2:1", None, 1, 118),
        (default, "home 2:1", 75, None, True, "1:1", None, 1, -22),
        (default, "home 2:1", 75, None, True, "2:1", None, half, 177),
        (default, "home 2:1", 75, None, True, "1:1", None, half, -33),
        (hoops, "home 90:80", 0, None, False, "101:94", None, 1, 25),
        (hoops, "home 90:80", 0, None, False, "95:80", None, 1, 25),
        (hoops, "home 90:80", 0, None, False, "96:80", None, 1, 20),
        (hoops, "home 90:80", 0, None, False, "100:90", None, 1, 30),
        (hoops, "home 90:80", 50, None, False, "101:94", None, 1, 33),
        (hoops, "home 81:80", 50, None, False, "80:81", None, 1, -3),
        (hoops, "home", 0, None, False, "101:94", None, 1, 20),
    ]:
        pick, _, guess = predicted.partition(" ")
        guess, score = (dict(zip(OTHER_SIDE, map(int, text.split(":")))) if text else None for text in (guess, score))
        prediction = {"prediction": pick, "score_prediction": guess, "confidence": confidence, "advances": advances,
                      "joker": joker}
        got = points(rules, multiplier, advanced is not None, prediction, {**score, "advanced": advanced})
        assert got == expected, f"{predicted} at {confidence} with {score}: {got} points instead of {expected}"


class Season:
    """Matches of a tournament with the results they first get. `slices` lists the rounds whose results arrive with one
    document; `changes[n]` lists the changes of document n + 1."""

    def __init__(self, rng, sport, tournament, team_name, team_count, slices, rule_set=None):
        teams = [{"slug": f"{team_name}_{n}".lower(), "name": f"{team_name} {n}"} for n in range(1, team_count + 1)]
        self.rng, self.slices = rng, slices
        self.head = {"sport": sport, "tournament": tournament, "teams": teams}
        if rule_set:
            self.head["rule_sets"] = [{"slug": tournament["rule_set"], "name": tournament["name"], **rule_set}]
        self.rules = DEFAULT_RULES | (rule_set or {})
        self.draws_allowed, self.max_score = sport.get("draws_allowed", True), sport.get("max_score", 99)
        self.teams = [team["slug"] for team in teams]
        self.strength = {team: rng.gauss(0, 1) for team in self.teams}
        self.matches, self.results = [], {}
        # One document more than slices: the last one holds corrections only.
        self.changes = [[] for _ in range(len(slices) + 1)]

    def simulate(self, home, away):
        """Returns a score that fits the strengths of the two teams."""
        edge = self.strength[home] - self.strength[away]
        if self.draws_allowed:
            # Ten chances to score for each team.
            return tuple(sum(self.rng.random() < chance for _ in range(10))
                         for chance in (0.15 + 0.03 * edge, 0.12 - 0.03 * edge))
        return without_draw(*(max(round(self.rng.gauss(mean, 8)), 0) for mean in (85 + 2 * edge, 82 - 2 * edge)))

    def add(self, key, home, away, number, stage=None, knockout=False, level=False):
        """Adds a match and its simulated result. Returns the winner and the loser; a level knockout match is decided
        on penalties."""
        # Rounds are a week apart, and a round takes at most three days, so start times ascend by round.
        start = FIRST_DAY + datetime.timedelta(days=7 * (number - 1), hours=3 * len(self.in_round(number)))
        match = {"key": key, "home": home, "away": away, "start_time": start.isoformat() + "Z",
                 "venue": f"Stadium of {home}", "status": "scheduled", "home_score": None, "away_score": None,
                 "round": number}
        if stage:
            match["stage"] = stage
        if knockout:
            match |= {"knockout": True, "advanced": None, "multiplier": None}
        scores = self.simulate(home, away)
        if level:
            scores = (scores[0], scores[0])
        winner = outcome(*scores)
        if winner == "draw" and knockout:
            winner = self.rng.choice(["home", "away"])
        self.matches.append(match)
        self.results[key] = {"home": scores[0], "away": scores[1], "advanced": winner if knockout else None}
        return (away, home) if winner == "away" else (home, away)

    def add_round_robins(self, prefix):
        """Adds two matches of each pair of teams; the second half repeats the first with home and away exchanged."""
        first = round_robin(self.teams)
        for number, pairs in enumerate(first + [[(away, home) for home, away in pairs] for pairs in first], 1):
            for n, (home, away) in enumerate(pairs, 1):
                self.add(f"{prefix}-{number}-{n}", home, away, number)

    def add_knockout(self, prefix, teams, number, stage):
        """Adds the matches of the first team against the last, the second against the last but one, and so on. Returns
        winners and losers."""
        # Every fourth football match ends level, so that each seed has decisions on penalties.
        return zip(*(self.add(f"{prefix}-{stage}-{n + 1}", teams[n], teams[-n - 1], number, stage, True,
                              self.draws_allowed and n % 4 == 0) for n in range(len(teams) // 2)))

    def ranked(self, teams):
        """Orders teams by points, difference and scores in the matches so far; the strength breaks ties."""
        total = {team: [0, 0, 0, self.strength[team]] for team in teams}
        for match in self.matches:
            for side, other in OTHER_SIDE.items():
                scored, conceded = self.results[match["key"]][side], self.results[match["key"]][other]
                row = total.get(match[side], [0, 0, 0])
                row[0] += 3 if scored > conceded else int(scored == conceded)
                row[1] += scored - conceded
                row[2] += scored
        return sorted(teams, key=total.get, reverse=True)

    def in_round(self, number):
        return [match for match in self.matches if match["round"] == number]

    def document_of(self, number):
        """Returns the index of the changes in which a round gets its results."""
        return next(n for n, rounds in enumerate(self.slices) if number in rounds)


def without_draw(home, away):
    """Gives the home team one point more if the score is level."""
    return home + (home == away), away


def round_robin(teams):
    """Returns one list of pairs per round, by the circle method."""
    circle, rounds = list(teams), []
    for number in range(len(teams) - 1):
        pairs = [(circle[n], circle[-n - 1]) for n in range(len(teams) // 2)]
        # The first team keeps its place. Without the swap it would play every match at home.
        rounds.append([(away, home) for home, away in pairs] if number % 2 else pairs)
        circle.insert(1, circle.pop())
    return rounds


def world_cup(rng):
    """48 teams in 12 groups; the first two of each group and the eight best third teams reach the round of 32."""
    tournament = {"slug": "world_cup_2101", "name": "World Cup 2101", "rule_set": "world_cup_2101"}
    slices = [[1], [2], [3], [4], [5], [6, 7], [8, 9]]
    season = Season(rng, {"slug": "football", "name": "Football"}, tournament, "Nation", 48, slices, CUP)
    groups = [season.teams[n:n + 4] for n in range(0, 48, 4)]
    for number in (1, 2, 3):
        for group, teams in zip("abcdefghijkl", groups):
            for n, (home, away) in enumerate(round_robin(teams)[number - 1], 1):
                season.add(f"wc-{group}-{number}-{n}", home, away, number, "group")
    firsts, seconds, thirds, _ = zip(*(season.ranked(teams) for teams in groups))
    teams = season.ranked(firsts) + season.ranked(seconds) + season.ranked(thirds)[:8]
    for number, stage in enumerate(["round_of_32", "round_of_16", "quarter_final", "semi_final"], 4):
        teams, losers = season.add_knockout("wc", teams, number, stage)
    season.add_knockout("wc", losers, 8, "third_place")
    season.add_knockout("wc", teams, 9, "final")
    return season


def league(rng):
    """20 teams, 38 rounds, and the default rule set because the document names none."""
    slices = [range(1, 7), range(7, 13), range(13, 20), range(20, 27), range(27, 33), range(33, 39)]
    tournament = {"slug": "league_2101", "name": "League 2101"}
    season = Season(rng, {"slug": "football", "name": "Football"}, tournament, "Club", 20, slices)
    season.add_round_robins("lg")
    return season


def basketball(rng):
    """12 teams, 22 rounds, then the best eight in knockout matches. No draws."""
    sport = {"slug": "basketball", "name": "Basketball", "draws_allowed": False, "max_score": 299,
             "rule_set": "hoops_2101"}
    tournament = {"slug": "hoops_2101", "name": "Hoops 2101", "rule_set": "hoops_2101"}
    slices = [range(1, 6), range(6, 12), range(12, 18), range(18, 23), [23], [24], [25]]
    season = Season(rng, sport, tournament, "Hoops", 12, slices, HOOPS)
    season.add_round_robins("bb")
    teams = season.ranked(season.teams)[:8]
    for number, stage in enumerate(["quarter_final", "semi_final", "final"], 23):
        teams, _ = season.add_knockout("bb", teams, number, stage)
    return season


def finished(match, result):
    """Returns the fields that give a match this result."""
    fields = {"status": "finished", "home_score": result["home"], "away_score": result["away"]}
    return fields | {"advanced": result["advanced"]} if "knockout" in match else fields


def swapped(result):
    """Returns the result with home and away exchanged."""
    return {"home": result["away"], "away": result["home"], "advanced": OTHER_SIDE.get(result["advanced"])}


def plan_results(season):
    """Plans the first result of every match, slice by slice. The first match of the next slice is live meanwhile."""
    for n, rounds in enumerate(season.slices):
        for match in season.matches:
            if match["round"] in rounds:
                season.changes[n].append((match["key"], finished(match, season.results[match["key"]])))
        if n + 1 < len(season.slices):
            live = season.in_round(season.slices[n + 1][0])[0]
            season.changes[n].append((live["key"], {"status": "live", "home_score": 0, "away_score": 0}))


def plan_corrections(season):
    """Plans corrections of every kind. Later matches keep their teams even if a correction changes the team that
    should have reached them: a correction after the cup changes points, not fixtures."""
    corrected, last = set(), len(season.changes) - 1

    def change(document, match, **fields):
        season.changes[document].append((match["key"], fields))
        corrected.add(match["key"])

    def result(match):
        return season.results[match["key"]]

    first, second, third = (season.in_round(number) for number in (1, 2, 3))
    regular = max(match["round"] for match in season.matches if "knockout" not in match)
    rounds = sorted({match["round"] for match in season.matches if "knockout" in match})
    blank = {"home_score": None, "away_score": None}
    change(1, first[0], **finished(first[0], swapped(result(first[0]))))
    change(2, first[1], status="abandoned")
    change(2, first[2], round=2)
    # Abandoned, then replayed: the points disappear and come back with another score.
    change(2, first[3], status="abandoned", **blank)
    change(4, first[3], **finished(first[3], swapped(result(first[3]))))
    change(season.document_of(2), second[2], status="cancelled", **blank)
    change(3, second[3], status="awarded", home_score=3, away_score=0)
    change(season.document_of(3), third[4], status="postponed", **blank)
    if season.draws_allowed and rounds:
        # A cup plays every match. In the other seasons the match stays postponed, so round 3 is never complete.
        change(4, third[4], **finished(third[4], result(third[4])))
    change(last, season.in_round(regular)[1], round=regular - 1)
    if rounds:
        opening, shown = season.in_round(rounds[0]), season.document_of(rounds[0])
        if season.draws_allowed:
            # Decisions on penalties: one arrives late, one is wrong at first, one is withdrawn.
            change(shown, opening[0], advanced=None)
            change(shown + 1, opening[0], advanced=result(opening[0])["advanced"])
            change(shown + 1, opening[4], advanced=OTHER_SIDE[result(opening[4])["advanced"]])
            change(last, opening[8], advanced=None)
            # The only match of its round becomes void: the round has neither a table nor winners.
            change(last, season.in_round(8)[0], status="awarded", home_score=3, away_score=0, advanced="home")
        else:
            # Without draws the winner advances, so another team advances only with another winner.
            change(shown + 1, opening[0], **finished(opening[0], swapped(result(opening[0]))))
            change(last, opening[1], **finished(opening[1], swapped(result(opening[1]))))
        change(shown + 1, opening[2], multiplier=2)
        change(last, opening[2], multiplier=None)
        change(last, opening[3], knockout=False, advanced=None)
        change(season.document_of(rounds[1]) + 1, season.in_round(rounds[1])[0], multiplier=3)
    # Many small corrections at once, all over the season.
    for match in season.matches[::9]:
        if match["key"] not in corrected and "knockout" not in match:
            home, away = result(match)["home"] + 1, result(match)["away"]
            home, away = (home, away) if season.draws_allowed else without_draw(home, away)
            change(last, match, home_score=home, away_score=away)


def check_match(season, match):
    """Asserts the rules of fixture documents that a planned change could break."""
    home, away, advanced = match["home_score"], match["away_score"], match.get("advanced")
    if match["status"] in ("finished", "awarded"):
        assert None not in (home, away) and (season.draws_allowed or home != away), match
    if advanced:
        assert match["knockout"] and match["status"] in ("finished", "awarded"), match
        assert season.draws_allowed or advanced == outcome(home, away), match


def documents(season):
    """Returns the first document, in which all matches are scheduled, and one more for each list of changes."""
    plan_results(season)
    plan_corrections(season)
    current = {match["key"]: match for match in season.matches}
    made = [{**season.head, "matches": list(current.values())}]
    for changes in season.changes:
        for key, fields in changes:
            current[key] = current[key] | fields
        for match in current.values():
            check_match(season, match)
        made.append({**season.head, "matches": list(current.values())})
    return made


def predicted_score(season, match):
    """Returns a score that often is the real one or close to it, because pure chance would give too few hits of the
    rarer kinds to test them."""
    rng, result = season.rng, season.results[match["key"]]
    home, away = result["home"], result["away"]
    kind, reach = rng.random(), 2 if season.draws_allowed else 7
    if kind > 0.5:
        home, away = season.simulate(match["home"], match["away"])
    elif kind > 0.3:
        home = max(home + rng.randint(-reach, reach), 0)
    elif kind > 0.1:
        shift = max(rng.randint(-reach, reach), -min(home, away))
        home, away = home + shift, away + shift
    home, away = min(home, season.max_score - 1), min(away, season.max_score)
    return (home, away) if season.draws_allowed else without_draw(home, away)


def predict(season, fan):
    """Returns the predictions of a fan, with at most as many jokers as the rule set allows."""
    rng, made = season.rng, []
    for match in season.matches:
        if rng.random() > 0.9:
            continue
        home, away = predicted_score(season, match)
        pick, advances = outcome(home, away), None
        if "knockout" in match and rng.random() < 0.8:
            advances = pick
            # In two-legged ties the winner of the match can be out, so a few fans name the other team.
            if season.draws_allowed and (pick == "draw" or rng.random() < 0.15):
                advances = rng.choice(["home", "away"])
        score = {"home": home, "away": away} if rng.random() < 0.85 else None
        confidence = 5 * rng.randint(0, 20) if rng.random() < 0.8 else rng.randint(0, 100)
        made.append({"fan": fan, "key": match["key"], "prediction": pick, "score_prediction": score,
                     "confidence": confidence, "advances": advances, "joker": False})
    for prediction in rng.sample(made, min(rng.randint(0, season.rules["joker"]), len(made))):
        prediction["joker"] = True
    return made


def tables(rules, document, predictions):
    """Returns the tables after a document (points, exact, correct and settled by fan) and the winners of the complete
    rounds. A round without a result has neither."""
    by_key = collections.defaultdict(list)
    for prediction in predictions:
        by_key[prediction["key"]].append(prediction)
    tournament, rounds, winners, open_rounds = {}, collections.defaultdict(dict), {}, set()
    for match in document["matches"]:
        if match["status"] != "finished":
            if match["status"] not in VOID:
                open_rounds.add(match["round"])
            continue
        result = {"home": match["home_score"], "away": match["away_score"], "advanced": match.get("advanced")}
        multiplier = Fraction(match.get("multiplier") or rules["multiplier"].get(match.get("stage"), 1))
        for prediction in by_key[match["key"]]:
            gained = points(rules, multiplier, match.get("knockout", False), prediction, result)
            exact = is_exact(prediction["score_prediction"], result)
            correct = prediction["prediction"] == outcome(result["home"], result["away"])
            for rows in (tournament, rounds[match["round"]]):
                row = rows.get(prediction["fan"], (0, 0, 0, 0))
                rows[prediction["fan"]] = (row[0] + gained, row[1] + exact, row[2] + correct, row[3] + 1)
    for number in sorted(rounds.keys() - open_rounds):
        best = max(row[0] for row in rounds[number].values())
        winners[number] = sorted(fan for fan, row in rounds[number].items() if row[0] == best)
    return {"tournament": tournament, "rounds": rounds}, winners


def main():
    check_points()
    seasons = {"world_cup": world_cup, "league": league, "basketball": basketball}
    if len(sys.argv) != 4 or sys.argv[1] not in seasons:
        sys.exit(f"usage: season.py {{{','.join(seasons)}}} FANS SEED")
    season = seasons[sys.argv[1]](random.Random(int(sys.argv[3])))
    imported = documents(season)
    predictions = [prediction for fan in range(int(sys.argv[2])) for prediction in predict(season, fan)]
    expected, winners = tables(season.rules, imported[-1], predictions)
    print(json.dumps({"documents": imported, "predictions": predictions, "tables": expected, "winners": winners}))


if __name__ == "__main__":
    main()
