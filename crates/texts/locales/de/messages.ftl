## Times

date-time = { $weekday ->
    [1] Mo.
    [2] Di.
    [3] Mi.
    [4] Do.
    [5] Fr.
    [6] Sa.
   *[7] So.
}, { $day }. { $month ->
    [1] Jan.
    [2] Feb.
    [3] März
    [4] April
    [5] Mai
    [6] Juni
    [7] Juli
    [8] Aug.
    [9] Sept.
    [10] Okt.
    [11] Nov.
   *[12] Dez.
}, { $hour }:{ $minute } Uhr

## Push notifications

push-reminder-title = { $home } – { $away }
push-reminder-body = Anstoß: { $start }. Dir fehlen noch Tipps.

push-moved-title = { $home } – { $away }
push-moved-body = { $status ->
    [postponed] Das Spiel wurde verschoben.
    [cancelled] Das Spiel wurde abgesagt.
   *[moved] Neuer Anstoß: { $start }.
}

push-result-title = { $home } – { $away }
push-result-body = { $points ->
    [one] Dein Tipp bringt { $points } Punkt.
   *[other] Dein Tipp bringt { $points } Punkte.
}

push-correction-title = { $home } – { $away }
push-correction-body = { $points ->
    [one] Das Ergebnis wurde korrigiert. Dein Tipp bringt jetzt { $points } Punkt.
   *[other] Das Ergebnis wurde korrigiert. Dein Tipp bringt jetzt { $points } Punkte.
}

push-passed-title = { $league }
push-passed-body = Du bist auf Platz { $rank } zurückgefallen.

push-invitation-title = { $room }
push-invitation-body = { $user } hat dich eingeladen.

push-mention-title = { $room }
push-mention-body = { $user } hat dich erwähnt.

push-streak-title = Deine Serie
push-streak-body = { $days ->
    [one] { $days } Tag in Folge. Hol dir die Münzen von heute vor Mitternacht (UTC).
   *[other] { $days } Tage in Folge. Hol dir die Münzen von heute vor Mitternacht (UTC).
}

## Text messages

sms-login-code = { $code } ist dein Code für { $app }. Er gilt { $minutes } Min. Gib ihn nicht weiter.
sms-verification-code = { $code } ist dein Code für { $app }. Er gilt { $minutes } Min. Gib ihn nicht weiter.

## Chat bot

bot-kick-off = Anstoß: { $home } – { $away }
bot-resumed = { $home } – { $away } geht weiter
bot-interrupted = { $home } – { $away } ist unterbrochen
bot-goal = Tor für { $team }! { $score }
bot-goal-disallowed = Tor für { $team } nicht anerkannt. { $score }
bot-full-time = Abpfiff: { $score }
bot-abandoned = { $home } – { $away } wurde abgebrochen; Tipps zählen nicht
bot-cancelled = { $home } – { $away } wurde abgesagt; Tipps zählen nicht
bot-awarded = { $score } wurde am grünen Tisch entschieden; Tipps zählen nicht
bot-corrected = Korrigiertes Ergebnis: { $now } (zuvor { $previous })
bot-no-result = kein Ergebnis
bot-not-counted = { $home } – { $away } zählt nicht
bot-not-finished = { $home } – { $away } ist nicht beendet
bot-best-predictors = Am besten getippt bei { $home } – { $away } in diesem Raum: { $names }
bot-best-predictors-corrected = Am besten getippt bei { $home } – { $away } in diesem Raum nach der Korrektur: { $names }
bot-round-completed = Runde { $round } von { $tournament } ist beendet: { $winners ->
    [0] niemand hat auf ihre Spiele getippt
    [1] { $names } gewinnt sie mit { $points } Punkten
   *[other] { $names } gewinnen sie mit je { $points } Punkten
}
bot-sealed = { $count ->
    [one] { $count } Tipp versiegelt · Siegel { $sequence }: { $hash }
   *[other] { $count } Tipps versiegelt · Siegel { $sequence }: { $hash }
}
