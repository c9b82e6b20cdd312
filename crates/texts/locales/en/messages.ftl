# Texts of push notifications, text messages and the chat bot. docs/translations.md explains arguments and limits.

## Times

# Time of a kick-off. $weekday is 1 for Monday to 7 for Sunday, $month is 1 to 12; $hour and $minute have two digits.
date-time = { $weekday ->
    [1] Mon
    [2] Tue
    [3] Wed
    [4] Thu
    [5] Fri
    [6] Sat
   *[7] Sun
} { $day } { $month ->
    [1] Jan
    [2] Feb
    [3] Mar
    [4] Apr
    [5] May
    [6] Jun
    [7] Jul
    [8] Aug
    [9] Sep
    [10] Oct
    [11] Nov
   *[12] Dec
}, { $hour }:{ $minute }

## Push notifications

push-reminder-title = { $home } – { $away }
push-reminder-body = Kick-off: { $start }. Some of your predictions are missing.

push-moved-title = { $home } – { $away }
push-moved-body = { $status ->
    [postponed] The match was postponed.
    [cancelled] The match was cancelled.
   *[moved] New kick-off: { $start }.
}

push-result-title = { $home } – { $away }
push-result-body = { $points ->
    [one] Your prediction scored { $points } point.
   *[other] Your prediction scored { $points } points.
}

push-correction-title = { $home } – { $away }
push-correction-body = { $points ->
    [one] The result was corrected. Your prediction now scores { $points } point.
   *[other] The result was corrected. Your prediction now scores { $points } points.
}

push-passed-title = { $league }
push-passed-body = You dropped to rank { $rank }.

push-invitation-title = { $room }
push-invitation-body = { $user } invited you.

push-mention-title = { $room }
push-mention-body = { $user } mentioned you.

push-streak-title = Your daily streak
push-streak-body = { $days ->
    [one] { $days } day in a row. Claim today's coins before midnight UTC.
   *[other] { $days } days in a row. Claim today's coins before midnight UTC.
}

## Text messages: at most 160 characters of the GSM 7-bit alphabet, with the code at the start

sms-login-code = { $code } is your { $app } code. It is valid for { $minutes } min. Do not share it with anyone.
sms-verification-code = { $code } is your { $app } code. It is valid for { $minutes } min. Do not share it with anyone.

## Chat bot. $score is like "Rovers 1 – 0 City".

bot-kick-off = Kick-off: { $home } – { $away }
bot-resumed = { $home } – { $away } has resumed
bot-interrupted = { $home } – { $away } is interrupted
bot-goal = Goal for { $team }! { $score }
bot-goal-disallowed = Goal for { $team } disallowed. { $score }
bot-full-time = Full time: { $score }
bot-abandoned = { $home } – { $away } was abandoned; predictions do not count
bot-cancelled = { $home } – { $away } was cancelled; predictions do not count
bot-awarded = { $score } was awarded; predictions do not count
bot-corrected = Corrected result: { $now } (previously { $previous })
bot-no-result = no result
bot-not-counted = { $home } – { $away } does not count
bot-not-finished = { $home } – { $away } is not finished
bot-best-predictors = Best predictors of { $home } – { $away } in this room: { $names }
bot-best-predictors-corrected = Best predictors of { $home } – { $away } in this room after the correction: { $names }
bot-round-completed = Round { $round } of { $tournament } is complete: { $winners ->
    [0] no user predicted its matches
    [1] { $names } won it with { $points } points
   *[other] { $names } won it with { $points } points each
}
bot-sealed = { $count ->
    [one] { $count } prediction sealed · Seal { $sequence }: { $hash }
   *[other] { $count } predictions sealed · Seal { $sequence }: { $hash }
}
