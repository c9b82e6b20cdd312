## Times

date-time = { $weekday ->
    [1] lun.
    [2] mar.
    [3] mer.
    [4] jeu.
    [5] ven.
    [6] sam.
   *[7] dim.
} { $day } { $month ->
    [1] janv.
    [2] févr.
    [3] mars
    [4] avr.
    [5] mai
    [6] juin
    [7] juil.
    [8] août
    [9] sept.
    [10] oct.
    [11] nov.
   *[12] déc.
}, { $hour }:{ $minute }

## Push notifications

push-reminder-title = { $home } – { $away }
push-reminder-body = Coup d’envoi : { $start }. Il vous manque des pronostics.

push-moved-title = { $home } – { $away }
push-moved-body = { $status ->
    [postponed] Le match a été reporté.
    [cancelled] Le match a été annulé.
   *[moved] Nouveau coup d’envoi : { $start }.
}

push-result-title = { $home } – { $away }
push-result-body = { $points ->
    [one] Votre pronostic rapporte { $points } point.
   *[other] Votre pronostic rapporte { $points } points.
}

push-correction-title = { $home } – { $away }
push-correction-body = { $points ->
    [one] Le résultat a été corrigé. Votre pronostic rapporte maintenant { $points } point.
   *[other] Le résultat a été corrigé. Votre pronostic rapporte maintenant { $points } points.
}

push-passed-title = { $league }
push-passed-body = Vous reculez à la { $rank }e place.

push-invitation-title = { $room }
push-invitation-body = Invitation de { $user }.

push-mention-title = { $room }
push-mention-body = { $user } vous mentionne.

push-streak-title = Votre série quotidienne
push-streak-body = { $days ->
    [one] { $days } jour d’affilée. Récupérez les pièces du jour avant minuit (UTC).
   *[other] { $days } jours d’affilée. Récupérez les pièces du jour avant minuit (UTC).
}

## Text messages

sms-login-code = { $code } est votre code { $app }. Il est valable { $minutes } min. Ne le communiquez à personne.
sms-verification-code = { $code } est votre code { $app }. Il est valable { $minutes } min. Ne le communiquez à personne.

## Chat bot

bot-kick-off = Coup d’envoi : { $home } – { $away }
bot-resumed = { $home } – { $away } a repris
bot-interrupted = { $home } – { $away } est interrompu
bot-goal = But pour { $team } ! { $score }
bot-goal-disallowed = But refusé à { $team }. { $score }
bot-full-time = Fin du match : { $score }
bot-abandoned = { $home } – { $away } a été arrêté définitivement ; les pronostics ne comptent pas
bot-cancelled = { $home } – { $away } a été annulé ; les pronostics ne comptent pas
bot-awarded = { $score } sur tapis vert ; les pronostics ne comptent pas
bot-corrected = Résultat corrigé : { $now } (auparavant { $previous })
bot-no-result = pas de résultat
bot-not-counted = { $home } – { $away } ne compte pas
bot-not-finished = { $home } – { $away } n’est pas terminé
bot-best-predictors = Meilleurs pronostics de { $home } – { $away } dans ce salon : { $names }
bot-best-predictors-corrected = Meilleurs pronostics de { $home } – { $away } dans ce salon après la correction : { $names }
bot-round-completed = La journée { $round } de { $tournament } est terminée : { $winners ->
    [0] aucun pronostic pour ses matchs
    [1] { $names } la remporte avec { $points } points
   *[other] { $names } la remportent avec { $points } points chacun
}
bot-sealed = { $count ->
    [one] { $count } pronostic scellé · Sceau { $sequence } : { $hash }
   *[other] { $count } pronostics scellés · Sceau { $sequence } : { $hash }
}
