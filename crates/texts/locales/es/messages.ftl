## Times

date-time = { $weekday ->
    [1] lun
    [2] mar
    [3] mié
    [4] jue
    [5] vie
    [6] sáb
   *[7] dom
} { $day } { $month ->
    [1] ene
    [2] feb
    [3] mar
    [4] abr
    [5] may
    [6] jun
    [7] jul
    [8] ago
    [9] sept
    [10] oct
    [11] nov
   *[12] dic
}, { $hour }:{ $minute }

## Push notifications

push-reminder-title = { $home } – { $away }
push-reminder-body = Comienza: { $start }. Te faltan pronósticos.

push-moved-title = { $home } – { $away }
push-moved-body = { $status ->
    [postponed] El partido se ha aplazado.
    [cancelled] El partido se ha cancelado.
   *[moved] Nueva hora de inicio: { $start }.
}

push-result-title = { $home } – { $away }
push-result-body = { $points ->
    [one] Tu pronóstico suma { $points } punto.
   *[other] Tu pronóstico suma { $points } puntos.
}

push-correction-title = { $home } – { $away }
push-correction-body = { $points ->
    [one] El resultado se ha corregido. Tu pronóstico suma ahora { $points } punto.
   *[other] El resultado se ha corregido. Tu pronóstico suma ahora { $points } puntos.
}

push-passed-title = { $league }
push-passed-body = Has bajado al puesto { $rank }.

push-invitation-title = { $room }
push-invitation-body = Tienes una invitación de { $user }.

push-mention-title = { $room }
push-mention-body = Te ha mencionado { $user }.

push-streak-title = Tu racha diaria
push-streak-body = { $days ->
    [one] { $days } día seguido. Recoge las monedas de hoy antes de la medianoche (UTC).
   *[other] { $days } días seguidos. Recoge las monedas de hoy antes de la medianoche (UTC).
}

## Text messages. "Clave", because "código" would need a second message.

sms-login-code = { $code } es tu clave de { $app }. Caduca en { $minutes } min. No la compartas con nadie.
sms-verification-code = { $code } es tu clave de { $app }. Caduca en { $minutes } min. No la compartas con nadie.

## Chat bot

bot-kick-off = Comienza el partido: { $home } – { $away }
bot-resumed = Se reanuda { $home } – { $away }
bot-interrupted = Se interrumpe { $home } – { $away }
bot-goal = ¡Gol de { $team }! { $score }
bot-goal-disallowed = Gol anulado a { $team }. { $score }
bot-full-time = Final: { $score }
bot-abandoned = { $home } – { $away } se ha suspendido definitivamente; los pronósticos no cuentan
bot-cancelled = { $home } – { $away } se ha cancelado; los pronósticos no cuentan
bot-awarded = { $score } se ha decidido en los despachos; los pronósticos no cuentan
bot-corrected = Resultado corregido: { $now } (antes { $previous })
bot-no-result = sin resultado
bot-not-counted = { $home } – { $away } no cuenta
bot-not-finished = { $home } – { $away } no ha terminado
bot-best-predictors = Mejores pronósticos de { $home } – { $away } en esta sala: { $names }
bot-best-predictors-corrected = Mejores pronósticos de { $home } – { $away } en esta sala tras la corrección: { $names }
bot-round-completed = La jornada { $round } de { $tournament } ha terminado: { $winners ->
    [0] nadie pronosticó sus partidos
    [1] la gana { $names } con { $points } puntos
   *[other] la ganan { $names } con { $points } puntos cada uno
}
bot-sealed = { $count ->
    [one] { $count } pronóstico sellado · Sello { $sequence }: { $hash }
   *[other] { $count } pronósticos sellados · Sello { $sequence }: { $hash }
}
