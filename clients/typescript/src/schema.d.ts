// Written by `npm run generate`; not to be changed by hand.

export interface paths {
    "/api/auth/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List matches
         * @description Live matches come first, the latest start first. Matches that can still be played follow, the earliest start first:
         *     scheduled and postponed ones that start later than three hours ago. All others come last, the latest start first. Matches
         *     with the same start are ordered by id. The list may lag a change by up to two seconds. It carries an `ETag`, so a request
         *     with `If-None-Match` costs a 304.
         */
        get: operations["list_events"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Listen to what happens, as it happens
         * @description Server-sent events, without end. `event`: a match is new or different (`changed` says in what). `result`: a match has a
         *     result, another one or none any more. `tally`: how a match is predicted, at most once a second. `points`: what the
         *     caller earned with a match. `rank`: the caller's place among all, after a match they predicted is counted. `reset`:
         *     something was missed that cannot be had any more; read the lists again.
         *
         *     Each has an `id`. Whoever loses the connection sends the last one as `Last-Event-ID` and misses nothing; an event
         *     may then come a second time. The server ends connections now and then, and those that do not keep up. Every few
         *     seconds comes at least an `id` alone.
         */
        get: operations["listen"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/code/request": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Ask for a code to log in with
         * @description The response is the same whether the phone has an account or not; the first login creates one. The text is in the
         *     language that `Accept-Language` prefers, if the service has it. While too many codes are requested from the caller's
         *     network, or for its block of numbers or country, `data.notice` is `codes_limited`: numbers that were used here before
         *     still get a code.
         */
        post: operations["request_code"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/resend-code": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Ask for another code
         * @description With a token it repeats the caller's pending verification of a phone, without one the phone's pending login. The code
         *     before is not good any more.
         */
        post: operations["resend_code"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/code/verify": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Log in with a code
         * @description The first login with a phone makes the account. A username that is taken is 422, and the code stays good.
         */
        post: operations["verify_code"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/login": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Log in with a code, by another name
         * @description The same as `POST /api/code/verify`.
         */
        post: operations["log_in"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/username/check": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Is a username free? */
        post: operations["check_username"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/username/generate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Suggest usernames */
        post: operations["generate_usernames"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/me": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The caller's account */
        get: operations["get_me"];
        put?: never;
        post?: never;
        /**
         * Delete the caller's account, for good
         * @description At once every session ends, and whatever says who the person is goes: phone, names, address, birthday, favourites,
         *     browsers. Predictions and coins stay, as those of nobody. The username is given to nobody else. A few minutes later what
         *     the person said in chat is taken back, and the chat account ends.
         */
        delete: operations["delete_me"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/update-user-info": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Change the caller's account */
        post: operations["update_user_info"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/verify-phone/initiate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Begin to verify a phone: the caller's own again, or another one to move to
         * @description Moving needs a recent proof of the current phone: a login less than ten minutes ago, or the current phone verified
         *     with this endpoint less than ten minutes ago. Otherwise the response is 422 with the code `proof_required`.
         */
        post: operations["initiate_verification"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/verify-phone": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Verify a phone with the code that was sent to it
         * @description Another phone than the caller's becomes theirs. Their other sessions end then, and the old phone gets a text with a
         *     code that undoes the move for 72 hours.
         */
        post: operations["verify_phone"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/phone/undo-move": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Undo moving an account to another phone
         * @description With the code that the old phone got. The account goes back to the old phone, and all its sessions end.
         */
        post: operations["undo_phone_move"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/me/export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Take along everything that the service has of the caller
         * @description What was said in chat is on the homeserver, from where every Matrix client can export it.
         */
        get: operations["export_me"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/me/deletion": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Ask for the code that deleting the account needs
         * @description It goes to the account's own phone, and is good for nothing else.
         */
        post: operations["request_deletion"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/matrix-credentials": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Get new chat credentials for this session
         * @description For an app that logged in while chat was away, or lost what it had. The session's chat token before is not good any
         *     more.
         */
        post: operations["get_matrix_credentials"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/.well-known/matrix/client": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Where is the homeserver? */
        get: operations["get_client_discovery"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/events/{event}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show one match */
        get: operations["get_event"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/tournaments": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List tournaments by name */
        get: operations["list_tournaments"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/sports": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List sports by name */
        get: operations["list_sports"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/teams": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List teams by name */
        get: operations["list_teams"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/teams/primary": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Save the caller's primary team */
        post: operations["save_primary_team"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/teams/other": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Save the caller's other favourite teams, in place of those before */
        post: operations["save_other_teams"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/predictions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the caller's own predictions, the newest first */
        get: operations["list_own_predictions"];
        put?: never;
        /**
         * Predict a match, in place of what the caller predicted before
         * @description Possible until the match starts. A prediction that is replaced keeps its id; what is left out of the new one is
         *     empty.
         */
        post: operations["save_prediction"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/predictions/{id}/explanation": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Explain what one of the caller's own predictions earned */
        get: operations["explain_prediction"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/events/{event}/points-preview": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Show what a prediction of a match would earn
         * @description Nothing is saved. It says the same whether the match still takes predictions or not.
         */
        get: operations["preview_points"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/me/calibration": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show how sure the caller was, against how often they were right */
        get: operations["get_calibration"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/events/{event}/predictions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the predictions of a match, those of the oldest accounts first */
        get: operations["list_event_predictions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/chat-rooms/{room}/predictions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the predictions of a room's members on its match, those of the oldest accounts first
         * @description All stands of a match are one crowd. A room without a match has none.
         */
        get: operations["list_room_predictions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/leaderboards": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Who has earned the most points, and where the caller is among them
         * @description Follows a result within seconds. Users whom the caller has blocked are left out; the ranks of the others stay.
         */
        get: operations["get_leaderboard"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/coins/deduct": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Spend coins on a purchase or a wager */
        post: operations["deduct_coins"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/daily-coins": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Claim the daily coins */
        post: operations["claim_daily_coins"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/coins": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The caller's coins, streak and history */
        get: operations["get_coins"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/chat-room": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Open a room
         * @description The caller has joined it when this answers. The same request again within a minute, or after a 503, goes on where the
         *     first one is, or answers the same room; no second one is made.
         */
        post: operations["create_room"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/chat-rooms": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List rooms, the liveliest first
         * @description Public rooms, and private ones that the caller has joined or is invited to. Rooms of users whom the caller has blocked
         *     are left out.
         */
        get: operations["list_rooms"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/chat-rooms/{room}/join": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Join a room
         * @description A match's own room holds only so many. When it is full, the caller joins another stand of the same match: `room_id`
         *     says which room it is, and `message` says so.
         */
        post: operations["join_room"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/chat-rooms/{room}/leave": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Leave a room, or decline an invitation to it
         * @description Whoever leaves a private room needs a new invitation to come back.
         */
        post: operations["leave_room"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/chat-rooms/{room}/invite": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Invite somebody to a room
         * @description In a private room its creator invites; in a public one every member may.
         */
        post: operations["invite_to_room"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/chat-rooms/{room}/member-stats": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show what the members of a room are and do */
        get: operations["get_member_stats"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/blocks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List whom the caller has blocked, the newest first */
        get: operations["list_blocks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/blocks/{user}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Block a user
         * @description Their predictions and rooms are not shown to the caller any more, their invitations are refused, and chat clients hide
         *     what they say.
         */
        post: operations["block_user"];
        /** Lift a block. That there is none is fine */
        delete: operations["unblock_user"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/chat-rooms/{room}/reports": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Report a message
         * @description It is kept for the operators with what it says, also if its sender takes it back. Of an encrypted one only the sender
         *     and the time can be read, so let the reason say what it was. Reporting a message again changes nothing.
         */
        post: operations["report_message"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/me/notifications": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show what the caller wants to be notified of, and where */
        get: operations["get_notifications"];
        /** Change what the caller wants to be notified of; what is not named stays */
        put: operations["save_notifications"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/me/notifications/push": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Notify the caller in a browser
         * @description A user has at most ten; an eleventh takes the place of the oldest. One with an endpoint that is there already gets its
         *     new keys.
         */
        post: operations["add_push_subscription"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/me/notifications/push/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Do not notify the caller in a browser any more */
        delete: operations["remove_push_subscription"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/logout": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** End this session */
        post: operations["log_out"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the caller's sessions, newest first */
        get: operations["list_sessions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/sessions/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** End one of the caller's sessions */
        delete: operations["end_session"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/logs/sms": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read the messages, with their codes, newest first
         * @description For development: there is no such endpoint in production, and codes are not kept there.
         */
        get: operations["list_sms_log"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sms/{provider}/status": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Receive a delivery report from an SMS provider in the query
         * @description For providers that report by GET. The provider must sign its reports.
         */
        get: operations["take_sms_report_by_query"];
        put?: never;
        /**
         * Receive a delivery report from an SMS provider
         * @description The body is a form or JSON, as the provider documents it. The provider must sign its reports.
         */
        post: operations["take_sms_report"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/healthz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Is the process alive? */
        get: operations["get_health"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Can it work? */
        get: operations["get_readiness"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        AccountDeleted: {
            /** @example The account is deleted. What was said in chat follows within minutes. */
            message: string;
        };
        BlockAnswer: {
            /** @example This user is blocked. */
            message: string;
        };
        BlockList: {
            data: components["schemas"]["BlockedUser"][];
            meta: components["schemas"]["PageMeta"];
        };
        /** @description Somebody whom the caller has blocked. */
        BlockedUser: {
            id: components["schemas"]["UserId"];
            /** @example swift_winger */
            username: string;
            /**
             * Format: date-time
             * @example 2026-11-20T15:00:00Z
             */
            blocked_at: string;
        };
        /** @description How sure the caller was, against how often they were right. */
        Calibration: {
            /**
             * Format: int32
             * @description How many predictions of matches with a result the caller made in time.
             * @example 42
             */
            settled: number;
            /**
             * Format: int32
             * @description How many of them were without confidence, and are in no bin.
             * @example 5
             */
            without_stake: number;
            /** @description By confidence: 1 to 10 percent, 11 to 20, and so on. */
            bins: components["schemas"]["CalibrationBin"][];
        };
        CalibrationAnswer: {
            data: components["schemas"]["Calibration"];
        };
        /** @description Predictions that were about as sure. */
        CalibrationBin: {
            /**
             * Format: int32
             * @description The least confidence, in percent.
             * @example 71
             */
            from: number;
            /**
             * Format: int32
             * @description The greatest.
             * @example 80
             */
            to: number;
            /**
             * Format: int32
             * @example 8
             */
            count: number;
            /**
             * Format: int32
             * @description How many of them said the right outcome.
             * @example 6
             */
            right: number;
            /**
             * Format: double
             * @description In percent; null of an empty bin.
             * @example 76.5
             */
            average_confidence: number | null;
            /**
             * Format: double
             * @description Which part was right, from 0 to 1; null of an empty bin. Of somebody who knows how sure they are it is about a
             *     hundredth of the average confidence.
             * @example 0.75
             */
            hit_rate: number | null;
        };
        /** @description A room that was just opened. */
        ChatRoom: {
            /** @example !auQboWavgiRMaylzYl:example.org */
            room_id: string;
            /** @example Derby talk */
            name: string;
            topic: string;
            event_id: components["schemas"]["EventId"] | null;
            creator_id: components["schemas"]["UserId"] | null;
            is_encrypted: boolean;
            /**
             * @description `public`, or `invite` where only those who are invited may come.
             * @example public
             */
            join_rule: string;
        };
        /** @description A room in a list. */
        ChatRoomListItem: {
            /** @example !auQboWavgiRMaylzYl:example.org */
            room_id: string;
            /** @example Derby talk */
            name: string;
            topic: string;
            event_id: components["schemas"]["EventId"] | null;
            event: components["schemas"]["RoomEvent"] | null;
            /**
             * Format: int32
             * @description Which of the match's own rooms it is; null for a room that somebody opened.
             * @example 1
             */
            stand: number | null;
            /**
             * Format: int64
             * @example 214
             */
            member_count: number;
            is_joined: boolean;
            is_encrypted: boolean;
            /**
             * Format: date-time
             * @example 2026-11-20T15:21:07Z
             */
            last_activity: string;
        };
        /** @description What the members of a room are and do. All stands of a match are counted together. */
        ChatRoomMemberStats: {
            /**
             * Format: int64
             * @example 214
             */
            total_members: number;
            /**
             * Format: int64
             * @description Who spoke, predicted or joined in the last 7 days.
             * @example 96
             */
            active_members: number;
            /**
             * Format: int64
             * @description Of members, on the room's match.
             * @example 120
             */
            predictions_made: number;
            /**
             * @description Members by team, by the team's slug, and `neutral` for all others.
             * @example {
             *       "city": 80,
             *       "neutral": 14,
             *       "rovers": 120
             *     }
             */
            team_distribution: {
                [key: string]: number;
            };
            /** @description Ten members by correct predictions, then accuracy, over all matches that are over. */
            top_predictors: components["schemas"]["TopPredictor"][];
        };
        /** @description As Matrix clients look for it. */
        ClientDiscovery: {
            "m.homeserver": components["schemas"]["DiscoveredHomeserver"];
        };
        /** @description A code is on its way. */
        CodeSent: {
            /** @example A code was sent. */
            message: string;
            data: components["schemas"]["CodeValidity"];
        };
        CodeValidity: {
            /**
             * Format: int64
             * @description For how many seconds the code is good.
             * @example 300
             */
            expires_in: number;
            /**
             * @description `codes_limited` while a limit that many callers share is used up. Numbers that were used here before get a code
             *     all the same; for others `Retry-After` says when to ask again.
             * @example codes_limited
             */
            notice?: string;
        };
        CoinDeduction: {
            /**
             * Format: int64
             * @example 150
             */
            previous_balance: number;
            /**
             * Format: int64
             * @example 25
             */
            amount_deducted: number;
            /**
             * Format: int64
             * @example 125
             */
            new_balance: number;
            /** @example txn_01a1f978-b580-7c21-9d6b-3f5a1b2c4d5e */
            transaction_id: string;
        };
        CoinHistoryMeta: {
            /** @description Where the rest of the history begins; null at its end. */
            next_cursor: string | null;
        };
        CoinOverview: {
            data: components["schemas"]["Coins"];
            meta: components["schemas"]["CoinHistoryMeta"];
        };
        CoinStreak: {
            /**
             * Format: int32
             * @description Days in a row on which the daily coins were claimed, up to today or yesterday; 0 once one was missed.
             * @example 2
             */
            days: number;
            /** @description Whether today's were. */
            claimed_today: boolean;
            /**
             * Format: date-time
             * @description When the next ones can be claimed: now, or the next midnight UTC.
             * @example 2026-11-21T00:00:00Z
             */
            next_claim_at: string;
            /**
             * Format: int64
             * @description How many they will be, if no day is missed.
             * @example 70
             */
            next_coins: number;
        };
        CoinTransaction: {
            /** @example txn_01a1f978-b580-7c21-9d6b-3f5a1b2c4d5e */
            transaction_id: string;
            kind: components["schemas"]["CoinTransactionKind"];
            /**
             * Format: int64
             * @description What came in; below zero what went out.
             * @example -25
             */
            amount: number;
            /**
             * Format: int64
             * @description What there was afterwards.
             * @example 125
             */
            balance: number;
            /**
             * @description What for, if that was said.
             * @example purchase
             */
            reason: string | null;
            /** @example order-4711 */
            reference_id: string | null;
            /** @description Of a reversal: the transaction that it takes back, wholly or in part. */
            reverses: string | null;
            event_id: components["schemas"]["EventId"] | null;
            /**
             * Format: date-time
             * @example 2026-11-20T15:00:00Z
             */
            created_at: string;
        };
        /**
         * @description Why coins moved.
         * @enum {string}
         */
        CoinTransactionKind: "welcome" | "daily" | "deduction" | "grant" | "reversal" | "points";
        /** @description How the caller stands. */
        Coins: {
            /**
             * Format: int64
             * @example 125
             */
            balance: number;
            streak: components["schemas"]["CoinStreak"];
            /** @description What moved, the newest first. */
            history: components["schemas"]["CoinTransaction"][];
        };
        CoinsDeducted: {
            /** @example The coins were deducted. */
            message: string;
            data: components["schemas"]["CoinDeduction"];
        };
        Confirmation: {
            /**
             * @description The code that was sent for this.
             * @example 271828
             */
            code: string;
        };
        CredentialsData: {
            matrix_credentials: components["schemas"]["MatrixCredentials"];
        };
        DailyCoinClaim: {
            /**
             * Format: int64
             * @description All of it, the part for the streak included.
             * @example 60
             */
            coins_awarded: number;
            /**
             * Format: int64
             * @example 210
             */
            new_balance: number;
            /**
             * Format: date-time
             * @description The next midnight UTC.
             * @example 2026-11-21T00:00:00Z
             */
            next_claim_at: string;
            /**
             * Format: int32
             * @description How many days in a row, this one included.
             * @example 2
             */
            streak_days: number;
            /**
             * Format: int64
             * @description The part that is for the streak.
             * @example 10
             */
            streak_bonus: number;
        };
        DailyCoinsClaimed: {
            /** @example The daily coins are yours. */
            message: string;
            data: components["schemas"]["DailyCoinClaim"];
        };
        DeductionBody: {
            /**
             * Format: int64
             * @example 25
             */
            amount: number;
            /**
             * @description What the coins are spent on. The operator may allow some reasons only.
             * @example purchase
             */
            reason: string;
            /**
             * @description What the app calls it. A deduction happens once for a reason and a reference: whoever repeats it gets the first
             *     answer, and another amount is refused.
             * @example order-4711
             */
            reference_id?: string | null;
        };
        DeletionRequested: {
            /** @example A code was sent. With it the account can be deleted. */
            message: string;
            data: components["schemas"]["PendingDeletion"];
        };
        DiscoveredHomeserver: {
            /** @example https://chat.example.org */
            base_url: string;
        };
        Done: {
            /** @example Logged out. */
            message: string;
        };
        /**
         * @description What every error answer holds.
         * @example {
         *       "code": "validation_failed",
         *       "errors": {
         *         "team_id": [
         *           "The team id is required."
         *         ]
         *       },
         *       "message": "The team id is required."
         *     }
         */
        ErrorBody: {
            /** @description For people. */
            message: string;
            /** @description For programs: stable, in `snake_case`. */
            code: string;
            errors?: {
                [key: string]: string[];
            } & Record<string, never>;
            /** @description On 500: what to tell the operator. */
            request_id?: string;
            /**
             * Format: date-time
             * @description With `account_suspended`: when the suspension ends. Absent if it has no end.
             */
            suspended_until?: string;
        };
        /** @description A match. */
        Event: {
            id: components["schemas"]["EventId"];
            tournament_id: components["schemas"]["TournamentId"];
            tournament: components["schemas"]["EventTournament"];
            home_team: components["schemas"]["EventTeam"];
            away_team: components["schemas"]["EventTeam"];
            /**
             * Format: date-time
             * @example 2026-11-20T15:00:00Z
             */
            start_time: string;
            status: components["schemas"]["EventStatus"];
            /** @description What lies behind the status, as in `postponed`, which is shown as `scheduled`. */
            status_detail: components["schemas"]["Status"];
            /** @example Park */
            venue: string;
            /**
             * Format: int32
             * @example 2
             */
            home_score: number | null;
            /**
             * Format: int32
             * @example 1
             */
            away_score: number | null;
            /** @description The match's chat room; null until it has one. */
            chat_room_id: string | null;
            /**
             * Format: int64
             * @example 1204
             */
            predictions_count: number;
        };
        EventAnswer: {
            data: components["schemas"]["Event"];
        };
        /**
         * Format: int64
         * @description A match.
         */
        EventId: number;
        EventList: {
            data: components["schemas"]["Event"][];
            meta: components["schemas"]["PageMeta"];
        };
        /**
         * @description The three states of the interface, in the order in which lists show them.
         * @enum {string}
         */
        EventStatus: "live" | "scheduled" | "finished";
        EventTeam: {
            id: components["schemas"]["TeamId"];
            /** @example Rovers */
            name: string;
            /** @example https://cdn.example.org/rovers.png */
            logo?: string;
        };
        EventTournament: {
            id: components["schemas"]["TournamentId"];
            /** @example Cup 2026 */
            name: string;
            /** @example https://cdn.example.org/cup.png */
            logo?: string;
        };
        ExplanationAnswer: {
            data: components["schemas"]["PredictionExplanation"];
        };
        ExportAnswer: {
            /** @description The rows of each table that has some of the caller, by its name, as they are stored. */
            data: {
                [key: string]: {
                    [key: string]: unknown;
                }[];
            };
        };
        /** @description A team as a favourite. */
        FavouriteTeam: {
            id: components["schemas"]["TeamId"];
            /** @example Rovers */
            name: string;
            /** @example https://cdn.example.org/rovers.png */
            logo: string | null;
        };
        /** @description Says that the process runs. */
        Health: {
            /** @example ok */
            status: string;
        };
        InfoSaved: {
            /** @example Your information was saved. */
            message: string;
            data: components["schemas"]["SavedInfo"];
        };
        Invitation: {
            user_id?: components["schemas"]["UserId"] | null;
            /**
             * @description Whom to invite: by name, or by `user_id`.
             * @example swift_winger
             */
            username?: string | null;
        };
        Invited: {
            /** @example The invitation is sent. */
            message: string;
            data: components["schemas"]["RoomMembership"];
        };
        Leaderboard: {
            data: components["schemas"]["LeaderboardData"];
            meta: components["schemas"]["LeaderboardMeta"];
        };
        /** @description The first, and where the caller is. */
        LeaderboardData: {
            top: components["schemas"]["LeaderboardEntry"][];
            me: components["schemas"]["LeaderboardEntry"] | null;
            /** @description Up to five before the caller, the caller, and up to five after; empty where the caller has no place. */
            neighbours: components["schemas"]["LeaderboardEntry"][];
        };
        /** @description A place. By points; those with the same share a rank, and are listed by exact scores, then right outcomes. */
        LeaderboardEntry: {
            /**
             * Format: int64
             * @example 3
             */
            rank: number;
            user: components["schemas"]["LeaderboardUser"];
            /**
             * Format: int32
             * @example 412
             */
            points: number;
            /**
             * Format: int32
             * @description Scores that were right to the goal.
             * @example 4
             */
            exact: number;
            /**
             * Format: int32
             * @description Outcomes that were right.
             * @example 13
             */
            correct: number;
            /**
             * Format: int32
             * @description Predicted matches that have a result.
             * @example 21
             */
            settled: number;
        };
        /** @description What the board is of. */
        LeaderboardMeta: {
            /**
             * Format: int64
             * @description How many have a place.
             * @example 1204
             */
            total_players: number;
            period: components["schemas"]["LeaderboardPeriod"];
            tournament_id: components["schemas"]["TournamentId"] | null;
            room_id: string | null;
        };
        /**
         * @description The name of a time.
         * @enum {string}
         */
        LeaderboardPeriod: "all" | "month" | "week";
        LeaderboardUser: {
            id: components["schemas"]["UserId"];
            /** @example swift_winger */
            username: string;
            /** @example Ada Obi */
            name: string | null;
        };
        /** @description A prediction as everybody sees it. */
        ListedPrediction: {
            id: components["schemas"]["PredictionId"];
            user: components["schemas"]["Predictor"];
            prediction: components["schemas"]["Pick"];
            score_prediction: components["schemas"]["ScorePrediction"] | null;
            /**
             * Format: int32
             * @example 75
             */
            confidence: number;
            /**
             * Format: int32
             * @description Null until the match has a result, and for good if it will have none or the prediction came too late. A corrected
             *     result corrects it.
             * @example 49
             */
            points_earned: number | null;
            /**
             * Format: date-time
             * @description When the user first predicted the match.
             * @example 2026-11-20T15:00:00Z
             */
            created_at: string;
        };
        LoginAnswer: {
            /** @example Logged in. */
            message: string;
            data: components["schemas"]["LoginData"];
        };
        LoginBody: {
            /**
             * @description The phone that the code was sent to.
             * @example +14155550100
             */
            phone: string;
            /** @example 271828 */
            code: string;
            /**
             * @description What to be called, at the first login; without it a username is made up. At later logins it changes nothing.
             * @example ada_obi
             */
            username?: string | null;
        };
        LoginData: {
            user: components["schemas"]["User"];
            /**
             * @description To be sent as `Authorization: Bearer …`. It is shown once.
             * @example md_1z_8vKz0Y4rB2xQ7nT5mW9cD1fG3hJ6kL8pR0sV2uX4yZ6_0aB1cD
             */
            token: string;
            matrix_credentials: components["schemas"]["MatrixCredentials"] | null;
        };
        /** @description How a match ended. */
        MatchResult: {
            /**
             * Format: int32
             * @example 2
             */
            home: number;
            /**
             * Format: int32
             * @example 1
             */
            away: number;
        };
        /** @description What a Matrix client needs to act as the user. */
        MatrixCredentials: {
            /** @example @swift_winger:example.org */
            user_id: string;
            /**
             * @description Good as long as the session is.
             * @example syt_c3dpZnRfd2luZ2Vy_AbCdEf_123456
             */
            access_token: string;
            /** @example MD0AbCdEf12345 */
            device_id: string;
        };
        Me: {
            data: components["schemas"]["MeData"];
        };
        /** @description The caller: account, coins, favourite teams and points. */
        MeData: components["schemas"]["User"] & {
            /**
             * Format: int64
             * @description How many coins the caller has.
             * @example 150
             */
            balance: number;
            teams: components["schemas"]["MyTeams"];
            /**
             * Format: int32
             * @description What the caller's predictions have earned in all. Follows a result within seconds.
             * @example 412
             */
            points: number;
        };
        MoveUndone: {
            /** @example Your account is back on this number, and all sessions were ended. Log in again. */
            message: string;
            data: components["schemas"]["UndonePhoneMove"];
        };
        MyTeams: {
            primary: components["schemas"]["FavouriteTeam"] | null;
            other: components["schemas"]["FavouriteTeam"][];
        };
        NewCredentials: {
            /** @example These are your chat credentials. */
            message: string;
            data: components["schemas"]["CredentialsData"];
        };
        NewRoom: {
            /** @example Derby talk */
            name: string;
            /** @example Everything about the derby */
            topic?: string | null;
            event_id?: components["schemas"]["EventId"] | null;
            /**
             * @description Only those who are invited may come, and what is said is encrypted.
             * @default false
             */
            is_private?: boolean | null;
        };
        /** @description A subscription as a browser gives it (`PushSubscription.toJSON()`). */
        NewSubscription: {
            /**
             * @description Where the browser's push service takes messages for it.
             * @example https://push.example.org/send/dQw4w9WgXcQ
             */
            endpoint: string;
            /** @description What messages are encrypted with. */
            keys: components["schemas"]["SubscriptionKeys"];
        };
        Noted: {
            /** @example Noted. */
            message: string;
        };
        /** @description What the caller wants to be notified of, and where. */
        Notifications: {
            /** @description Whether the caller is reminded, an hour before, of matches of their teams that they have not predicted. */
            reminders: boolean;
            quiet_hours: components["schemas"]["QuietHours"] | null;
            /** @description The browsers that are notified, oldest first. */
            push: components["schemas"]["PushSubscription"][];
            /**
             * @description What a browser needs to subscribe (`applicationServerKey`); null where this service notifies no browsers.
             * @example BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4
             */
            vapid_public_key: string | null;
        };
        NotificationsAnswer: {
            data: components["schemas"]["Notifications"];
        };
        NotificationsChange: {
            /** @description Left out or null it stays. */
            reminders?: boolean | null;
            quiet_hours?: components["schemas"]["QuietHours"] | null;
        };
        OtherChoice: {
            /**
             * @description At most five different teams, the dearest first; empty clears the selection.
             * @example [
             *       3,
             *       1,
             *       2
             *     ]
             */
            team_ids: components["schemas"]["TeamId"][];
        };
        OtherTeams: {
            teams: components["schemas"]["FavouriteTeam"][];
        };
        OthersSaved: {
            /** @example Other teams saved. */
            message: string;
            data: components["schemas"]["OtherTeams"];
        };
        /** @description A prediction of the caller, with its match. */
        OwnPrediction: components["schemas"]["Prediction"] & {
            /**
             * Format: date-time
             * @description When the caller said this.
             * @example 2026-11-20T15:00:00Z
             */
            updated_at: string;
            event: components["schemas"]["PredictedEvent"];
        };
        /** @description Predictions of the caller. */
        OwnPredictionList: {
            data: components["schemas"]["OwnPrediction"][];
            meta: components["schemas"]["OwnPredictionMeta"];
        };
        OwnPredictionMeta: {
            /**
             * @description Where the list goes on; null at its end.
             * @example AAAAAAAAAGQ
             */
            next_cursor: string | null;
        };
        /**
         * @description Where a page stands in its list.
         * @example {
         *       "current_page": 1,
         *       "last_page": 3,
         *       "per_page": 20,
         *       "total": 51
         *     }
         */
        PageMeta: {
            /**
             * Format: int64
             * @description The page that was asked for.
             */
            current_page: number;
            /**
             * Format: int64
             * @description The last page that has items, at least 1.
             */
            last_page: number;
            /**
             * Format: int64
             * @description How many items a page has at most.
             */
            per_page: number;
            /**
             * Format: int64
             * @description How many items there are on all pages.
             */
            total: number;
        };
        PendingDeletion: {
            /**
             * Format: int64
             * @description For how many seconds the code is valid.
             * @example 300
             */
            expires_in: number;
            /** @example +14155550100 */
            phone: string;
            /**
             * @description `codes_limited` while a limit that many callers share is used up: the code may not arrive. `Retry-After` says
             *     when to ask again.
             * @example codes_limited
             */
            notice?: string;
        };
        PendingVerification: {
            /**
             * Format: int64
             * @description For how many seconds the code is valid.
             * @example 300
             */
            expires_in: number;
            /** @example +14155550100 */
            phone: string;
            /**
             * @description `codes_limited` while a limit that many callers share is used up: the code may not arrive. `Retry-After` says
             *     when to ask again.
             * @example codes_limited
             */
            notice?: string;
        };
        /** @description A phone, and nothing else. */
        PhoneBody: {
            /**
             * @description In the international form; spaces, dashes, dots and parentheses are ignored.
             * @example +14155550100
             */
            phone: string;
        };
        PhoneProof: {
            /**
             * @description The phone that the code was sent to.
             * @example +14155550100
             */
            phone: string;
            /** @example 271828 */
            code: string;
        };
        PhoneVerified: {
            /** @example The phone was verified. */
            message: string;
            data: components["schemas"]["VerifiedPhone"];
        };
        /**
         * @description The predicted winner, or a draw.
         * @enum {string}
         */
        Pick: "home" | "draw" | "away";
        /** @description Points of a prediction for one aspect of it. */
        PointsPart: {
            part: components["schemas"]["PointsReason"];
            /**
             * Format: int32
             * @description All parts add up to the points of the prediction.
             * @example 20
             */
            points: number;
            /**
             * @description Reason for these points, as a sentence.
             * @example The home team won, as you said.
             */
            reason: string;
        };
        /** @description What a prediction would earn. */
        PointsPreview: {
            /**
             * Format: int32
             * @description By which rules.
             * @example 1
             */
            rules_version: number;
            /**
             * Format: int32
             * @description If the outcome is right.
             * @example 39
             */
            right: number;
            /**
             * Format: int32
             * @description If the goal difference is right too; null without a score, and for a draw.
             * @example 49
             */
            goal_difference: number | null;
            /**
             * Format: int32
             * @description If every goal is right; null without a score.
             * @example 59
             */
            exact_score: number | null;
            /**
             * Format: int32
             * @description If the outcome is wrong: 0, or below.
             * @example -11
             */
            wrong: number;
        };
        /**
         * @description The aspect of a prediction that points are given for.
         * @enum {string}
         */
        PointsReason: "outcome" | "goal_difference" | "exact_score" | "confidence";
        /** @description What a prediction speaks of. */
        PredictedEvent: {
            id: components["schemas"]["EventId"];
            /** @example Rovers */
            home_team: string;
            /** @example City */
            away_team: string;
            /**
             * Format: date-time
             * @example 2026-11-20T15:00:00Z
             */
            start_time: string;
            status: components["schemas"]["EventStatus"];
            /**
             * Format: int32
             * @example 2
             */
            home_score: number | null;
            /**
             * Format: int32
             * @example 1
             */
            away_score: number | null;
        };
        /** @description A prediction of the caller. */
        Prediction: {
            id: components["schemas"]["PredictionId"];
            user_id: components["schemas"]["UserId"];
            event_id: components["schemas"]["EventId"];
            prediction: components["schemas"]["Pick"];
            score_prediction: components["schemas"]["ScorePrediction"] | null;
            /**
             * Format: int32
             * @example 75
             */
            confidence: number;
            /**
             * Format: int32
             * @description Null until the match has a result, and for good if it will have none or the prediction came too late. A corrected
             *     result corrects it.
             */
            points_earned: number | null;
            /**
             * Format: date-time
             * @description When the caller first predicted the match.
             * @example 2026-11-20T15:00:00Z
             */
            created_at: string;
        };
        PredictionBody: {
            event_id: components["schemas"]["EventId"];
            prediction: components["schemas"]["Pick"];
            score_prediction?: components["schemas"]["ScorePrediction"] | null;
            /**
             * Format: int32
             * @description How sure the caller is, in percent. It adds to the points of a right prediction and takes from those of a wrong
             *     one.
             * @default 0
             * @example 75
             */
            confidence?: number | null;
        };
        /**
         * @description How many say what.
         * @example {
         *       "away": 300,
         *       "draw": 204,
         *       "home": 700
         *     }
         */
        PredictionDistribution: {
            /** Format: int64 */
            home: number;
            /** Format: int64 */
            draw: number;
            /** Format: int64 */
            away: number;
        };
        /** @description What a prediction of the caller earned, and why. */
        PredictionExplanation: {
            id: components["schemas"]["PredictionId"];
            event_id: components["schemas"]["EventId"];
            prediction: components["schemas"]["Pick"];
            score_prediction: components["schemas"]["ScorePrediction"] | null;
            /**
             * Format: int32
             * @example 75
             */
            confidence: number;
            state: components["schemas"]["PredictionState"];
            result: components["schemas"]["MatchResult"] | null;
            /**
             * Format: int32
             * @description Null unless the state is `settled`.
             * @example 49
             */
            points_earned: number | null;
            /**
             * Format: int32
             * @description By which rules. A match keeps those it was announced under.
             * @example 1
             */
            rules_version: number;
            /** @description The points part by part; they add up to `points_earned`. Empty unless the state is `settled`. */
            parts: components["schemas"]["PointsPart"][];
        };
        /**
         * Format: int64
         * @description What a user predicts of a match.
         */
        PredictionId: number;
        /** @description Predictions of one match. */
        PredictionList: {
            data: components["schemas"]["ListedPrediction"][];
            meta: components["schemas"]["PredictionMeta"];
        };
        /** @description Speaks of all predictions of the match, whatever the filter. */
        PredictionMeta: {
            /**
             * Format: int64
             * @example 1204
             */
            total_predictions: number;
            prediction_distribution: components["schemas"]["PredictionDistribution"];
            /**
             * Format: double
             * @description In percent; 0 without predictions.
             * @example 62.5
             */
            average_confidence: number;
            /**
             * @description Where the list goes on; null at its end.
             * @example AAAAAAAAAGQ
             */
            next_cursor: string | null;
        };
        PredictionSaved: {
            /** @example Prediction saved. */
            message: string;
            data: components["schemas"]["Prediction"];
        };
        /**
         * @description Whether a prediction counts, and whether its match has a result.
         * @enum {string}
         */
        PredictionState: "open" | "settled" | "void" | "late";
        Predictor: {
            id: components["schemas"]["UserId"];
            /** @example swift_winger */
            username: string;
            /** @example Ada Obi */
            name: string | null;
        };
        PreviewAnswer: {
            data: components["schemas"]["PointsPreview"];
        };
        PrimaryChoice: {
            team_id: components["schemas"]["TeamId"];
        };
        PrimarySaved: {
            /** @example Primary team saved. */
            message: string;
            data: components["schemas"]["PrimaryTeam"];
        };
        PrimaryTeam: {
            team: components["schemas"]["FavouriteTeam"];
        };
        /** @description A browser that is notified. */
        PushSubscription: {
            id: components["schemas"]["SubscriptionId"];
            /**
             * @description The host of its push service.
             * @example push.example.org
             */
            host: string;
            /**
             * Format: date-time
             * @example 2026-11-20T15:00:00Z
             */
            created_at: string;
        };
        /** @description When nothing is sent, by the clocks of a time zone. */
        QuietHours: {
            /** @example 22:00 */
            from: string;
            /**
             * @description Before `from` if midnight lies between.
             * @example 08:00
             */
            until: string;
            /**
             * @description A name of the time zone database.
             * @example Europe/Berlin
             */
            time_zone: string;
        };
        /** @description Whether this process should get requests, and which parts it can reach. */
        Readiness: {
            /**
             * @description `ready`, `not_ready`, or `draining` after the process was told to end.
             * @example ready
             */
            status: string;
            /**
             * @description `up` or `down`, by part. Without PostgreSQL the process is not ready; without any other it serves what it can.
             * @example {
             *       "homeserver": "up",
             *       "nats": "up",
             *       "postgres": "up",
             *       "redis": "up"
             *     }
             */
            parts: {
                [key: string]: string;
            };
        };
        ReportAnswer: {
            /** @example Thank you. Somebody will look at it. */
            message: string;
        };
        ReportedMessage: {
            /**
             * @description The message, as the homeserver names it.
             * @example $Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg
             */
            event_id: string;
            /** @example Insults */
            reason: string;
        };
        RoomCreated: {
            /** @example The room is open. */
            message: string;
            data: components["schemas"]["ChatRoom"];
        };
        /** @description The match of a room. */
        RoomEvent: {
            id: components["schemas"]["EventId"];
            /** @example Rovers */
            home_team: string;
            /** @example City */
            away_team: string;
            /**
             * Format: date-time
             * @example 2026-11-20T15:00:00Z
             */
            start_time: string;
        };
        RoomJoined: {
            /** @example You have joined the room. */
            message: string;
            data: components["schemas"]["RoomMembership"];
        };
        RoomList: {
            data: components["schemas"]["ChatRoomListItem"][];
            meta: components["schemas"]["PageMeta"];
        };
        /** @description What the caller is to a room now. */
        RoomMembership: {
            /** @example !auQboWavgiRMaylzYl:example.org */
            room_id: string;
            /** @example join */
            membership: string;
        };
        /** @description Predictions of a room's members on its match. */
        RoomPredictionList: {
            data: components["schemas"]["ListedPrediction"][];
            meta: components["schemas"]["RoomPredictionMeta"];
        };
        /** @description Speaks of all predictions of the room, whatever the filter. */
        RoomPredictionMeta: {
            /**
             * Format: int64
             * @example 120
             */
            total_predictions: number;
            /**
             * Format: int64
             * @example 70
             */
            home_predictions: number;
            /**
             * Format: int64
             * @example 20
             */
            draw_predictions: number;
            /**
             * Format: int64
             * @example 30
             */
            away_predictions: number;
            /**
             * @description Where the list goes on; null at its end.
             * @example AAAAAAAAAGQ
             */
            next_cursor: string | null;
        };
        /** @description The account as it is now. */
        SavedInfo: components["schemas"]["User"] & {
            matrix_credentials?: components["schemas"]["MatrixCredentials"] | null;
        };
        /** @description A predicted score: each side has 0 to 99 goals. */
        ScorePrediction: {
            /**
             * Format: int32
             * @example 2
             */
            home: number;
            /**
             * Format: int32
             * @example 1
             */
            away: number;
        };
        /** @description One of the caller's sessions. */
        Session: {
            id: components["schemas"]["SessionId"];
            /**
             * Format: date-time
             * @example 2026-11-20T15:00:00Z
             */
            created_at: string;
            /**
             * Format: date-time
             * @description To within five minutes.
             * @example 2026-11-20T15:00:00Z
             */
            last_used_at: string;
            /**
             * Format: date-time
             * @description When it ends if it is not used again.
             * @example 2026-12-20T15:00:00Z
             */
            expires_at: string;
            /** @description Whether it is the session of this very request. */
            current: boolean;
            /**
             * @description What the client said of itself when it logged in.
             * @example MatchdayApp/2.1 (Android 16)
             */
            user_agent: string;
        };
        /**
         * Format: int64
         * @description A login of an account.
         */
        SessionId: number;
        SessionList: {
            data: components["schemas"]["Session"][];
            meta: components["schemas"]["PageMeta"];
        };
        SmsLog: {
            data: components["schemas"]["SmsLogEntry"][];
            meta: components["schemas"]["PageMeta"];
        };
        /** @description A message that was handed to a provider. */
        SmsLogEntry: {
            /** Format: int64 */
            id: number;
            /** @example +14155550100 */
            phone: string;
            /** @example 271828 */
            code: string;
            /** @description The text of a message without a code. */
            text?: string;
            /**
             * @description `sent` or `failed`.
             * @example sent
             */
            status: string;
            /** @example console */
            provider: string;
            /** @description Only of one that failed. */
            error?: string;
            /**
             * Format: date-time
             * @example 2026-11-20T15:00:00Z
             */
            created_at: string;
            /**
             * Format: date-time
             * @description Only of one that was sent.
             * @example 2026-11-20T15:05:00Z
             */
            expires_at?: string;
            /**
             * Format: date-time
             * @description Only of one that the provider reported to have arrived.
             * @example 2026-11-20T15:00:04Z
             */
            delivered_at?: string;
            /**
             * Format: int32
             * @description How often the code was tried.
             */
            attempts: number;
        };
        /** @description A sport. */
        Sport: {
            id: components["schemas"]["SportId"];
            /** @example Football */
            name: string;
            /** @example football */
            slug: string;
        };
        /**
         * Format: int64
         * @description A sport.
         */
        SportId: number;
        SportList: {
            data: components["schemas"]["Sport"][];
            meta: components["schemas"]["PageMeta"];
        };
        StatsAnswer: {
            data: components["schemas"]["ChatRoomMemberStats"];
        };
        /**
         * @description What a match really is. The interface shows three states; this is the additive `status_detail`.
         * @enum {string}
         */
        Status: "scheduled" | "live" | "finished" | "postponed" | "suspended" | "abandoned" | "cancelled" | "awarded";
        /**
         * @description What is not as before in a match.
         * @enum {string}
         */
        StreamChange: "created" | "status" | "start_time" | "score";
        /** @description An event of the stream, as a client that reads server-sent events takes it apart. */
        StreamEvent: {
            /**
             * @description The place in the stream, to go on after.
             * @example 1794774696627-40
             */
            id: string;
            /**
             * @description Which schema describes `data`: `StreamMatch`, `StreamResult`, `StreamTally`, `StreamPoints`, `StreamRank`, or an
             *     empty object for `reset`.
             */
            event: components["schemas"]["StreamEventKind"];
            /**
             * @description JSON.
             * @example {"event_id":5,"points_earned":48}
             */
            data: string;
        };
        /**
         * @description What kind of event it is.
         * @enum {string}
         */
        StreamEventKind: "event" | "result" | "tally" | "points" | "rank" | "reset";
        /** @description A match as it is now. */
        StreamMatch: {
            event_id: components["schemas"]["EventId"];
            tournament_id: components["schemas"]["TournamentId"];
            home_team: components["schemas"]["TeamName"];
            away_team: components["schemas"]["TeamName"];
            status: components["schemas"]["EventStatus"];
            /** @description What lies behind the status, as in `postponed`, which is shown as `scheduled`. */
            status_detail: components["schemas"]["Status"];
            /**
             * Format: date-time
             * @example 2026-11-20T15:00:00Z
             */
            start_time: string;
            /** Format: int32 */
            home_score: number | null;
            /** Format: int32 */
            away_score: number | null;
            /** @description What is not as before. */
            changed: components["schemas"]["StreamChange"][];
        };
        /** @description What the caller earned with a match. */
        StreamPoints: {
            event_id: components["schemas"]["EventId"];
            /**
             * Format: int32
             * @description Null where the match does not count.
             * @example 48
             */
            points_earned: number | null;
        };
        /** @description The caller's place among all, after a match they predicted was counted. */
        StreamRank: {
            event_id: components["schemas"]["EventId"];
            /**
             * Format: int64
             * @example 9
             */
            rank: number;
            /**
             * Format: int64
             * @description Among how many.
             * @example 24
             */
            of: number;
            /**
             * Format: int32
             * @example 64
             */
            points: number;
        };
        /** @description The result of a match. */
        StreamResult: {
            event_id: components["schemas"]["EventId"];
            tournament_id: components["schemas"]["TournamentId"];
            /**
             * Format: int64
             * @description How many results the match has had.
             */
            result_revision: number;
            /** Format: int32 */
            home_score: number | null;
            /** Format: int32 */
            away_score: number | null;
            /** @description Whether predictions of it count: not where it was called off, abandoned or awarded. */
            counts: boolean;
            /** @description Whether an earlier result was wrong. */
            corrected: boolean;
        };
        /** @description How a match is predicted. */
        StreamTally: {
            event_id: components["schemas"]["EventId"];
            tournament_id: components["schemas"]["TournamentId"];
            /**
             * Format: int64
             * @example 1204
             */
            total_predictions: number;
            prediction_distribution: components["schemas"]["PredictionDistribution"];
            /**
             * Format: double
             * @description In percent.
             * @example 62.5
             */
            average_confidence: number;
        };
        SubscriptionAdded: {
            /** @example This browser is notified from now on. */
            message: string;
            data: components["schemas"]["PushSubscription"];
        };
        /**
         * Format: int64
         * @description A browser that a user wants to be notified in.
         */
        SubscriptionId: number;
        /** @description Encryption keys of a browser's push subscription. */
        SubscriptionKeys: {
            /**
             * @description The browser's public key, a point of P-256 in base64.
             * @example BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4
             */
            p256dh: string;
            /**
             * @description A secret of 16 bytes in base64.
             * @example BTBZMqHH6r4Tts7J_aSIgg
             */
            auth: string;
        };
        SubscriptionRemoved: {
            /** @example That browser is notified no more. */
            message: string;
        };
        SuggestionWish: {
            /**
             * @description Anything: a name, a word, in any script.
             * @example Striker
             */
            base: string;
            /** @description Whether every suggestion ends in a digit; otherwise none has any. Left out it is false. */
            include_numbers?: boolean | null;
        };
        Suggestions: {
            /**
             * @example [
             *       "striker_fc",
             *       "the_striker",
             *       "golden.striker"
             *     ]
             */
            suggestions: string[];
        };
        /** @description A team. */
        Team: {
            id: components["schemas"]["TeamId"];
            /** @example Rovers */
            name: string;
            /** @example rovers */
            slug: string;
            sport_id: components["schemas"]["SportId"];
            sport: components["schemas"]["TeamSport"];
            /** @example https://cdn.example.org/rovers.png */
            logo: string | null;
            /** @example England */
            country: string | null;
            /**
             * Format: int32
             * @example 1886
             */
            founded: number | null;
        };
        /**
         * Format: int64
         * @description A team.
         */
        TeamId: number;
        TeamList: {
            data: components["schemas"]["Team"][];
            meta: components["schemas"]["PageMeta"];
        };
        /** @description A team, by name. */
        TeamName: {
            /** @description The team. */
            id: components["schemas"]["TeamId"];
            /**
             * @description What it is called.
             * @example Harbour United
             */
            name: string;
        };
        TeamSport: {
            id: components["schemas"]["SportId"];
            /** @example Football */
            name: string;
            /** @example football */
            slug: string;
        };
        /** @description A member who is right often. */
        TopPredictor: {
            user_id: components["schemas"]["UserId"];
            /** @example swift_winger */
            username: string;
            /**
             * Format: int64
             * @example 17
             */
            correct_predictions: number;
            /**
             * Format: double
             * @description From 0 to 1.
             * @example 0.68
             */
            accuracy: number;
        };
        /** @description A tournament. */
        Tournament: {
            id: components["schemas"]["TournamentId"];
            sport_id: components["schemas"]["SportId"];
            /** @example Cup 2026 */
            name: string;
            /** @example cup_2026 */
            slug: string;
            /** @example https://cdn.example.org/cup.png */
            logo: string | null;
        };
        /**
         * Format: int64
         * @description A tournament.
         */
        TournamentId: number;
        TournamentList: {
            data: components["schemas"]["Tournament"][];
            meta: components["schemas"]["PageMeta"];
        };
        Undo: {
            /**
             * @description The code from the text message to the old phone. Case, spaces and dashes are ignored.
             * @example 1A-0123-4567-89AB-CDYZ
             */
            code: string;
        };
        UndonePhoneMove: {
            /**
             * @description The phone to log in with.
             * @example +14155550100
             */
            phone: string;
        };
        /** @description An account, as its owner sees it. */
        User: {
            id: components["schemas"]["UserId"];
            /** @example +14155550100 */
            phone: string | null;
            /** @example swift_winger */
            username: string;
            /**
             * Format: date-time
             * @example 2026-11-20T15:00:00Z
             */
            created_at: string;
            /** @example Ada Obi */
            name: string | null;
            /** @example ada@example.org */
            email: string | null;
            /**
             * Format: date
             * @example 1990-02-28
             */
            date_of_birth: string | null;
            /** @description Whether the username was made up by the service. Then it can be replaced, once. */
            username_is_generated: boolean;
        };
        /**
         * Format: int64
         * @description An account.
         */
        UserId: number;
        /** @description What to change. What is not named stays, null clears it. */
        UserInfo: {
            /** @example Ada Obi */
            name?: string | null;
            /**
             * Format: email
             * @example ada@example.org
             */
            email?: string | null;
            /**
             * Format: date
             * @description As many years ago as the operator demands (`accounts.minimum_age`, 13 by default), or more.
             * @example 1990-02-28
             */
            date_of_birth?: string | null;
            /**
             * @description Instead of the username that the service made up; works once. The chat account moves along.
             * @example ada_obi
             */
            username?: string | null;
        };
        UsernameAnswer: {
            available: boolean;
            /** @example The username is taken. */
            message: string;
            /**
             * @description Free ones, where the one asked for is not.
             * @example [
             *       "striker_fc",
             *       "the_striker",
             *       "striker_07"
             *     ]
             */
            suggestions?: string[];
        };
        UsernameQuestion: {
            /**
             * @description 3 to 30 letters, digits, dots and underscores. Case is ignored.
             * @example striker90
             */
            username: string;
        };
        VerificationBegun: {
            /** @example A code was sent. */
            message: string;
            data: components["schemas"]["PendingVerification"];
        };
        VerifiedPhone: {
            verified: boolean;
            /** @example +14155550100 */
            phone: string;
        };
    };
    responses: {
        /** @description The same request is still under way; `Retry-After` says when to try again */
        InProgress: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "code": "idempotency_in_progress",
                 *       "message": "The same request is still under way. Try again shortly."
                 *     }
                 */
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description Something went wrong on our side; tell the operator the request id */
        Internal: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "code": "internal_error",
                 *       "message": "Something went wrong on our side.",
                 *       "request_id": "4f1c2ab9d0e8f7360000000001"
                 *     }
                 */
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description Something in the request is of the wrong type or value; `errors` says what, by field */
        Invalid: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "code": "validation_failed",
                 *       "errors": {
                 *         "page": [
                 *           "The page must be a whole number from 1."
                 *         ]
                 *       },
                 *       "message": "The page must be a whole number from 1."
                 *     }
                 */
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The body is not JSON */
        Malformed: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "code": "malformed_json",
                 *       "message": "The body is not JSON: line 1, column 10."
                 *     }
                 */
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description Too many requests; `Retry-After` says when to try again */
        RateLimited: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "code": "rate_limited",
                 *       "message": "Too many requests. Try again later."
                 *     }
                 */
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The account is suspended */
        Suspended: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "code": "account_suspended",
                 *       "message": "This account is suspended."
                 *     }
                 */
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The body is larger than 64 KiB */
        TooLarge: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "code": "body_too_large",
                 *       "message": "The body is too large."
                 *     }
                 */
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The token is missing, unknown, expired or revoked */
        Unauthenticated: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "code": "unauthenticated",
                 *       "message": "A valid token is needed."
                 *     }
                 */
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description A part is away, or too much is going on; `Retry-After` says when to try again */
        Unavailable: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "code": "overloaded",
                 *       "message": "Too many requests are under way. Try again shortly."
                 *     }
                 */
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
    };
    parameters: {
        /**
         * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
         * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
         */
        IdempotencyKey: string;
    };
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    list_events: {
        parameters: {
            query?: {
                /** @description Only matches of this tournament. */
                tournament_id?: number;
                /** @description Only matches of this team, at home or away. */
                team_id?: number;
                /**
                 * @description Only matches that start on this UTC day.
                 * @example 2026-11-20
                 */
                date?: string;
                /** @description Only matches in this state. */
                status?: components["schemas"]["EventStatus"];
                /**
                 * @description Which page; the first is 1.
                 * @example 1
                 */
                page?: number;
                /**
                 * @description How many items a page has; more than 100 is served as 100.
                 * @example 20
                 */
                per_page?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    /** @description A weak validator of the page */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventList"];
                };
            };
            /** @description The page is as the `If-None-Match` says */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listen: {
        parameters: {
            query?: {
                /** @description Only what happens in this match. */
                event_id?: number;
                /** @description Only what happens in matches of this tournament. */
                tournament_id?: number;
                /**
                 * @description Only what happens in the match of this chat room: the homeserver's id of it.
                 * @example !auQboWavgiRMaylzYl:example.org
                 */
                room_id?: string;
                /** @description Only what happens in matches that the caller predicted. */
                mine?: boolean;
                /**
                 * @description Go on after the event with this id; for clients that cannot send the header `Last-Event-ID`, which wins.
                 * @example 1763000000-42
                 */
                last_event_id?: string;
            };
            header?: {
                /**
                 * @description Go on after the event with this id.
                 * @example 1763000000-42
                 */
                "Last-Event-ID"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Events, as they happen */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": components["schemas"]["StreamEvent"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            /** @description A private room that the caller is not in */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description No such room */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            422: components["responses"]["Invalid"];
            /** @description The caller listens on too many connections */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    request_code: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PhoneBody"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CodeSent"];
                };
            };
            400: components["responses"]["Malformed"];
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            /** @description Too many codes; `Retry-After` says when to ask again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    resend_code: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PhoneBody"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CodeSent"];
                };
            };
            400: components["responses"]["Malformed"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            409: components["responses"]["InProgress"];
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            /** @description Too many codes; `Retry-After` says when to ask again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    verify_code: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LoginBody"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoginAnswer"];
                };
            };
            400: components["responses"]["Malformed"];
            /** @description The code is wrong, expired, used up, or was never sent */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The account is suspended (`account_suspended`); `suspended_until` is when that ends, if it does */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            /** @description Too many tries; `Retry-After` says when to try again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    log_in: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LoginBody"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoginAnswer"];
                };
            };
            400: components["responses"]["Malformed"];
            /** @description The code is wrong, expired, used up, or was never sent */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The account is suspended (`account_suspended`); `suspended_until` is when that ends, if it does */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            /** @description Too many tries; `Retry-After` says when to try again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    check_username: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["UsernameQuestion"];
            };
        };
        responses: {
            /** @description Also for one that is taken or reserved; then with suggestions */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UsernameAnswer"];
                };
            };
            400: components["responses"]["Malformed"];
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            /** @description Too many questions from this network */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    generate_usernames: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SuggestionWish"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Suggestions"];
                };
            };
            400: components["responses"]["Malformed"];
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            /** @description Too many questions from this network */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    get_me: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Me"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    delete_me: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Confirmation"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AccountDeleted"];
                };
            };
            400: components["responses"]["Malformed"];
            /** @description The token is not good, or the code is wrong, expired or used up */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            403: components["responses"]["Suspended"];
            /** @description The account has no phone (`no_phone`) */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            /** @description Too many tries; `Retry-After` says when to try again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    update_user_info: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["UserInfo"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["InfoSaved"];
                };
            };
            400: components["responses"]["Malformed"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            409: components["responses"]["InProgress"];
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    initiate_verification: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PhoneBody"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VerificationBegun"];
                };
            };
            400: components["responses"]["Malformed"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            409: components["responses"]["InProgress"];
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            /** @description Too many codes; `Retry-After` says when to ask again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    verify_phone: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PhoneProof"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PhoneVerified"];
                };
            };
            400: components["responses"]["Malformed"];
            /** @description The token is not valid, or the code is wrong, expired or used up */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            403: components["responses"]["Suspended"];
            409: components["responses"]["InProgress"];
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            /** @description Too many tries; `Retry-After` says when to try again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    undo_phone_move: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Undo"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MoveUndone"];
                };
            };
            400: components["responses"]["Malformed"];
            /** @description The code is wrong, expired or used up */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The old phone belongs to another account that is older than the move */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            /** @description Too many tries; `Retry-After` says when to try again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    export_me: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    /** @description A name for the file */
                    "Content-Disposition"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ExportAnswer"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            /** @description Too many exports; `Retry-After` says when to ask again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    request_deletion: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletionRequested"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            /** @description The account has no phone (`no_phone`), its phone was changed less than 72 hours ago (`phone_moved_lately`), or the same request is under way */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            422: components["responses"]["Invalid"];
            /** @description Too many codes; `Retry-After` says when to ask again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    get_matrix_credentials: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NewCredentials"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            /** @description The caller is muted (`muted`), where the homeserver cannot keep them silent by itself */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The chat server has another account with the caller's username (`chat_name_taken`); it can be replaced with `POST /api/auth/update-user-info` */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            422: components["responses"]["Invalid"];
            /** @description Too often; `Retry-After` says when to ask again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            /** @description Chat does not answer (`chat_unavailable`); `Retry-After` says when to try again */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    get_client_discovery: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ClientDiscovery"];
                };
            };
            /** @description There is no chat here */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    get_event: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description As listed */
                event: components["schemas"]["EventId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventAnswer"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            /** @description There is no such match */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    list_tournaments: {
        parameters: {
            query?: {
                /**
                 * @description Which page; the first is 1.
                 * @example 1
                 */
                page?: number;
                /**
                 * @description How many items a page has; more than 100 is served as 100.
                 * @example 20
                 */
                per_page?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TournamentList"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    list_sports: {
        parameters: {
            query?: {
                /**
                 * @description Which page; the first is 1.
                 * @example 1
                 */
                page?: number;
                /**
                 * @description How many items a page has; more than 100 is served as 100.
                 * @example 20
                 */
                per_page?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SportList"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    list_teams: {
        parameters: {
            query?: {
                /** @description Only teams of this sport. */
                sport_id?: number;
                /**
                 * @description Only teams with this in their name, in any case.
                 * @example rovers
                 */
                search?: string;
                /**
                 * @description Which page; the first is 1.
                 * @example 1
                 */
                page?: number;
                /**
                 * @description How many items a page has; more than 100 is served as 100.
                 * @example 20
                 */
                per_page?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TeamList"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    save_primary_team: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PrimaryChoice"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PrimarySaved"];
                };
            };
            400: components["responses"]["Malformed"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            /** @description There is no such team */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            409: components["responses"]["InProgress"];
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    save_other_teams: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["OtherChoice"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OthersSaved"];
                };
            };
            400: components["responses"]["Malformed"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            409: components["responses"]["InProgress"];
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    list_own_predictions: {
        parameters: {
            query?: {
                /** @description Only those of matches that still take predictions (`open`), or have a result (`settled`). */
                status?: "open" | "settled";
                /**
                 * @description How many items to answer with; more than 100 is served as 100.
                 * @example 100
                 */
                per_page?: number;
                /**
                 * @description The `next_cursor` of the answer before.
                 * @example AAAAAAAAAGQ
                 */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OwnPredictionList"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    save_prediction: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PredictionBody"];
            };
        };
        responses: {
            /** @description It replaced the caller's earlier one */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PredictionSaved"];
                };
            };
            /** @description It is the caller's first of this match */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PredictionSaved"];
                };
            };
            /** @description Predictions for the match are closed (`event_started`, `event_postponed`, `event_cancelled` or `event_finished`), or the body is not JSON */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            /** @description There is no such match */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            409: components["responses"]["InProgress"];
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    explain_prediction: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description As listed */
                id: components["schemas"]["PredictionId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ExplanationAnswer"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            /** @description There is no such prediction, or it is somebody else's */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    preview_points: {
        parameters: {
            query: {
                /** @description Who wins. */
                prediction: components["schemas"]["Pick"];
                /**
                 * @description Goals of the home team; with `away`, and in agreement with the prediction.
                 * @example 2
                 */
                home?: number;
                /**
                 * @description Goals of the away team; with `home`.
                 * @example 1
                 */
                away?: number;
                /**
                 * @description How sure, in percent.
                 * @example 75
                 */
                confidence?: number;
            };
            header?: never;
            path: {
                /** @description As listed */
                event: components["schemas"]["EventId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PreviewAnswer"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            /** @description There is no such match */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    get_calibration: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CalibrationAnswer"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    list_event_predictions: {
        parameters: {
            query?: {
                /** @description Only the prediction of this user. */
                user_id?: number;
                /** @description Only predictions that say this. */
                prediction?: components["schemas"]["Pick"];
                /**
                 * @description How many items to answer with; more than 100 is served as 100.
                 * @example 100
                 */
                per_page?: number;
                /**
                 * @description The `next_cursor` of the answer before.
                 * @example AAAAAAAAAGQ
                 */
                cursor?: string;
            };
            header?: never;
            path: {
                /** @description As listed */
                event: components["schemas"]["EventId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PredictionList"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            /** @description There is no such match */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    list_room_predictions: {
        parameters: {
            query?: {
                /** @description Only the prediction of this user. */
                user_id?: number;
                /** @description Only predictions that say this. */
                prediction?: components["schemas"]["Pick"];
                /**
                 * @description How many items to answer with; more than 100 is served as 100.
                 * @example 100
                 */
                per_page?: number;
                /**
                 * @description The `next_cursor` of the answer before.
                 * @example AAAAAAAAAGQ
                 */
                cursor?: string;
            };
            header?: never;
            path: {
                /**
                 * @description The homeserver's id of the room, percent-encoded or not.
                 * @example !auQboWavgiRMaylzYl:example.org
                 */
                room: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RoomPredictionList"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            /** @description A private room, and the caller is no member */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description There is no such room */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    get_leaderboard: {
        parameters: {
            query?: {
                /** @description Which matches count, by when they start: all, or those of the present month or week by UTC. */
                period?: components["schemas"]["LeaderboardPeriod"];
                /** @description Only matches of this tournament, of all time. */
                tournament_id?: number;
                /**
                 * @description Only members of this chat room: the homeserver's id of it. All stands of a match are one crowd.
                 * @example !auQboWavgiRMaylzYl:example.org
                 */
                room_id?: string;
                /**
                 * @description How many to show at the top; more than 100 is served as 100.
                 * @example 20
                 */
                per_page?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Leaderboard"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            /** @description A private room, and the caller is no member (`not_allowed`) */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            /** @description The board is being filled (`leaderboard_rebuilding`) or out of reach (`leaderboard_unavailable`); `Retry-After` says when to try again */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    deduct_coins: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DeductionBody"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CoinsDeducted"];
                };
            };
            /** @description The body is not JSON, or there are not so many coins */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            409: components["responses"]["InProgress"];
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    claim_daily_coins: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DailyCoinsClaimed"];
                };
            };
            /** @description Today's coins were claimed already */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            409: components["responses"]["InProgress"];
            422: components["responses"]["Invalid"];
            /** @description Too many tries; `Retry-After` says when to try again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    get_coins: {
        parameters: {
            query?: {
                /**
                 * @description How many items to answer with; more than 100 is served as 100.
                 * @example 100
                 */
                per_page?: number;
                /**
                 * @description The `next_cursor` of the answer before.
                 * @example AAAAAAAAAGQ
                 */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CoinOverview"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    create_room: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewRoom"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RoomCreated"];
                };
            };
            400: components["responses"]["Malformed"];
            401: components["responses"]["Unauthenticated"];
            /** @description The caller is muted (`muted`) */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            409: components["responses"]["InProgress"];
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            /** @description Too often; `Retry-After` says when to ask again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            /** @description Chat does not answer (`chat_unavailable`); `Retry-After` says when to try again */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    list_rooms: {
        parameters: {
            query?: {
                /** @description With `true`, only rooms that the caller has joined. */
                joined?: boolean;
                /** @description Only rooms of this match: its own, with all their stands, and those that fans opened. */
                event_id?: number;
                /**
                 * @description Only rooms with this in their name, in any case.
                 * @example derby
                 */
                search?: string;
                /**
                 * @description Which page; the first is 1.
                 * @example 1
                 */
                page?: number;
                /**
                 * @description How many items a page has; more than 100 is served as 100.
                 * @example 50
                 */
                per_page?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RoomList"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    join_room: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path: {
                /**
                 * @description The homeserver's id of the room, percent-encoded or not.
                 * @example !auQboWavgiRMaylzYl:example.org
                 */
                room: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RoomJoined"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            /** @description A private room without an invitation or a room that the caller was banned from (`not_allowed`), or the caller is muted (`muted`) */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description There is no such room */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The caller is a member already, for a match of any of its stands */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            422: components["responses"]["Invalid"];
            /** @description Too often; `Retry-After` says when to ask again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            /** @description Too many are joining at this moment (`room_busy`), or chat does not answer (`chat_unavailable`); `Retry-After` says when to try again */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    leave_room: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path: {
                /**
                 * @description The homeserver's id of the room, percent-encoded or not.
                 * @example !auQboWavgiRMaylzYl:example.org
                 */
                room: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RoomJoined"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            /** @description The caller is neither a member nor invited (`not_a_member`, `not_allowed`) */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description There is no such room */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            409: components["responses"]["InProgress"];
            422: components["responses"]["Invalid"];
            /** @description Too often; `Retry-After` says when to ask again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            /** @description Chat does not answer (`chat_unavailable`); `Retry-After` says when to try again */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    invite_to_room: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path: {
                /**
                 * @description The homeserver's id of the room, percent-encoded or not.
                 * @example !auQboWavgiRMaylzYl:example.org
                 */
                room: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Invitation"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Invited"];
                };
            };
            400: components["responses"]["Malformed"];
            401: components["responses"]["Unauthenticated"];
            /** @description The caller is not a member (`not_a_member`), may not invite (`not_allowed`), is muted (`muted`), or is not heard by whom they invite (`invitation_refused`) */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description There is no such room */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description They are a member already */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            /** @description Too often; `Retry-After` says when to ask again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            /** @description Chat does not answer (`chat_unavailable`); `Retry-After` says when to try again */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
        };
    };
    get_member_stats: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /**
                 * @description The homeserver's id of the room, percent-encoded or not.
                 * @example !auQboWavgiRMaylzYl:example.org
                 */
                room: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StatsAnswer"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            /** @description A private room, and the caller is no member */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description There is no such room */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    list_blocks: {
        parameters: {
            query?: {
                /**
                 * @description Which page; the first is 1.
                 * @example 1
                 */
                page?: number;
                /**
                 * @description How many items a page has; more than 100 is served as 100.
                 * @example 20
                 */
                per_page?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BlockList"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    block_user: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path: {
                /** @description Whom to block */
                user: components["schemas"]["UserId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BlockAnswer"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            /** @description There is no such user */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description A thousand users are blocked already */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description Nobody blocks themselves */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description Too often; `Retry-After` says when to ask again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    unblock_user: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Whom to meet again */
                user: components["schemas"]["UserId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BlockAnswer"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            /** @description That cannot be a user */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description Too often; `Retry-After` says when to ask again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    report_message: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path: {
                /**
                 * @description The homeserver's id of the room, percent-encoded or not.
                 * @example !auQboWavgiRMaylzYl:example.org
                 */
                room: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ReportedMessage"];
            };
        };
        responses: {
            /** @description The caller has reported it before */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ReportAnswer"];
                };
            };
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ReportAnswer"];
                };
            };
            400: components["responses"]["Malformed"];
            401: components["responses"]["Unauthenticated"];
            /** @description A private room, and the caller is no member */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description There is no such room */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            409: components["responses"]["InProgress"];
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            /** @description Too often; `Retry-After` says when to ask again */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    get_notifications: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NotificationsAnswer"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    save_notifications: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NotificationsChange"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NotificationsAnswer"];
                };
            };
            400: components["responses"]["Malformed"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    add_push_subscription: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewSubscription"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SubscriptionAdded"];
                };
            };
            400: components["responses"]["Malformed"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            /** @description This service notifies no browsers (`push_unavailable`), or the same request is under way */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            413: components["responses"]["TooLarge"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    remove_push_subscription: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description As listed */
                id: components["schemas"]["SubscriptionId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SubscriptionRemoved"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            /** @description The caller has no such browser */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    log_out: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A name of the client's own for this request, like a UUID. Sent again with the same name, path and body within 24 hours, the request does not happen again: the answer is the one of the first time, with `Idempotency-Replayed: true`. Only answers of 401, 403, 413, 429 and from 500 on are not kept, nor those that hold credentials. Another body is 422 `idempotency_key_reused`.
                 * @example 8e03978e-40d5-43dd-bc93-6894a57f9324
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The token is not good any more */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Done"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            409: components["responses"]["InProgress"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    list_sessions: {
        parameters: {
            query?: {
                /**
                 * @description Which page; the first is 1.
                 * @example 1
                 */
                page?: number;
                /**
                 * @description How many items a page has; more than 100 is served as 100.
                 * @example 20
                 */
                per_page?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionList"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            422: components["responses"]["Invalid"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    end_session: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description As listed */
                id: components["schemas"]["SessionId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Its token is not good any more */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Done"];
                };
            };
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Suspended"];
            /** @description The caller has no such session */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            429: components["responses"]["RateLimited"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    list_sms_log: {
        parameters: {
            query?: {
                /**
                 * @description Only messages to this phone.
                 * @example +14155550100
                 */
                phone?: string;
                /**
                 * @description Only messages of this day (UTC).
                 * @example 2026-11-20
                 */
                date?: string;
                /** @description Only messages of this status: `sent` or `failed`. */
                status?: string;
                /** @description Messages without a code, like the one to a phone that an account has left, instead of those with one. */
                notices?: boolean;
                /**
                 * @description Which page; the first is 1.
                 * @example 1
                 */
                page?: number;
                /**
                 * @description How many items a page has; more than 100 is served as 100.
                 * @example 20
                 */
                per_page?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SmsLog"];
                };
            };
            /** @description In production */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            422: components["responses"]["Invalid"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    take_sms_report_by_query: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The provider that reports */
                provider: "twilio" | "vonage";
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Noted"];
                };
            };
            /** @description The report could not be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The provider did not sign this report */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The provider is not in use, or not set up to send reports */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The provider does not report by GET */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    take_sms_report: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The provider that reports */
                provider: "twilio" | "vonage";
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": unknown;
                "application/x-www-form-urlencoded": string;
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Noted"];
                };
            };
            /** @description The report could not be understood */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The provider did not sign this report */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            /** @description The provider is not in use, or not set up to send reports */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErrorBody"];
                };
            };
            413: components["responses"]["TooLarge"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    get_health: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
        };
    };
    get_readiness: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Readiness"];
                };
            };
            /** @description Not ready, or draining */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Readiness"];
                };
            };
        };
    };
}
