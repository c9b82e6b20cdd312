"""Gives Schemathesis a user or a server key: logs in by SMS as apps do, puts existing ids into valid requests, and counts
responses by status. Run as a script, it prints the counts (dev/schemathesis does so)."""

import collections
import itertools
import json
import os
import pathlib
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

BASE = os.environ.get("HOSTILE_BASE", "")
COUNTS = pathlib.Path(os.environ.get("HOSTILE_COUNTS", "counts"))
# "with" and "without": requests to the API for apps, with or without a user's token. "key": requests to the server API.
CALLER = os.environ.get("HOSTILE_CALLER", "")
SERVER_KEY = os.environ.get("HOSTILE_KEY", "")


def call(method, path, token=None, body=None):
    """Sends a request to the service and returns its data. Any error status raises an exception."""
    headers = {"content-type": "application/json"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(BASE + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{method} {path}: {error.code} {error.read()[:500]}") from error


class TestUser:
    """A user with a token. Logs in again after a generated request has ended the session."""

    numbers = itertools.count(int.from_bytes(os.urandom(2), "big") * 100)

    def __init__(self):
        self.lock = threading.Lock()
        self.phone = self.number()
        self.token = None
        self.user = None
        self.known = {}

    def number(self):
        return f"+1201555{next(self.numbers) % 10_000:04}"

    def log_in(self, phone):
        username = f"fan_{os.urandom(6).hex()}"
        login = call("POST", "/api/code/verify", body={"phone": phone, "code": self.code(phone), "username": username})
        return login["token"], login["user"]["id"]

    def current(self):
        with self.lock:
            if self.token is None:
                # This may create a new account: a generated request can have moved the old one to another phone.
                self.token, user = self.log_in(self.phone)
                if user != self.user:
                    self.user = user
                    self.learn()
            return self.token

    def ended(self, token):
        with self.lock:
            if self.token == token:
                self.token = None

    def learn(self):
        """Collects existing ids for requests."""
        _, other = self.log_in(self.number())
        room = call("POST", "/api/auth/chat-room", self.token, {"name": f"Room {os.urandom(4).hex()}", "is_private": False})
        listed = call("GET", "/api/auth/events", self.token)
        events = [event["id"] for event in listed]
        # Requests with a server key change the status of matches.
        for event in [event["id"] for event in listed if event["status"] == "scheduled"][:3]:
            call("POST", "/api/auth/predictions", self.token, {"event_id": event, "prediction": "home"})
        tournaments = [found["id"] for found in call("GET", "/api/auth/tournaments", self.token)]
        league = call("POST", "/api/auth/leagues", self.token, {"name": "Friends", "tournament_ids": tournaments[:1], "visibility": "public"})
        self.known = {
            "league": [league["id"]],
            "league_id": [league["id"]],
            "tournament_ids": [tournaments[:1]],
            "question": [found["id"] for found in call("GET", "/api/auth/questions", self.token)],
            "event": events,
            "event_id": events,
            "team_id": [team["id"] for team in call("GET", "/api/auth/teams", self.token)],
            "tournament_id": tournaments,
            "sport_id": [found["id"] for found in call("GET", "/api/auth/sports", self.token)],
            "room": [room["room_id"]],
            "user": [other],
            "user_id": [self.user, other],
        }
        if CALLER == "key":
            coins = call("GET", "/api/auth/coins", self.token)["history"]
            self.known |= {"user": [self.user, other], "phone": [self.phone], "transaction_id": [item["transaction_id"] for item in coins]}

    def names(self, path, name):
        """Existing ids for this parameter of this path."""
        if name == "webhook":
            return [found["id"] for found in call("GET", "/api/server/v1/webhooks", SERVER_KEY)]
        if name != "id":
            return self.known.get(name, [])
        if path == "/api/auth/rule-sets/{id}":
            return [1]
        if path.startswith("/api/auth/me/notifications/push/"):
            return [found["id"] for found in call("GET", "/api/auth/me/notifications", self.current())["push"]]
        listed = path.split("/{id}")[0]
        # The oldest session, because the newest is the current one.
        return [found["id"] for found in call("GET", listed, self.current())][-1:]

    def code(self, phone):
        call("POST", "/api/code/request", body={"phone": phone})
        return call("GET", "/api/logs/sms?status=sent&phone=" + urllib.parse.quote(phone))[0]["code"]


# A request that matches its schema may be refused for reasons that no schema can express. Each such refusal is listed
# here with its reason; every other one is a failure.
REFUSALS = {
    "idempotency_key_reused": "only the service knows whether a key was used for another request",
    "insufficient_balance": "the balance changes",
    "already_claimed": "only one claim a day",
    "must be a cursor from an earlier response": "cursors are opaque",
    "contradicts the prediction": "two fields must agree",
    "is required with": "two fields belong together",
    "must be all if tournament_id is given": "two parameters must agree",
    "is required, but not both": "one of two fields",
    "must name another user": "the request does not contain the caller",
    "must name an existing user": "existing users change",
    "must name a message in this room": "messages in a room change",
    "has no pending verification": "pending codes change",
    "is not the phone to which the code was sent": "pending codes change",
    "is already chosen and cannot be changed": "a username is chosen once",
    "is taken": "taken usernames change",
    "was used for another amount": "used references change",
    "must be a phone number": "a pattern cannot express numbering plans",
    "must be a number that can receive text messages": "a pattern cannot express numbering plans",
    "must be an e-mail address": "the standard allows more addresses than browsers do",
    "must name an existing match": "existing matches change",
    "must name existing teams": "existing teams change",
    "must be a room id": "the length limit is in bytes",
    "must be a date in the past": "depends on the current date",
    "must have p256dh and auth": "a pattern cannot express points of a curve",
    "must be the address of a push service": "a pattern cannot express valid host names",
    "must have from and until": "a pattern cannot express time zone names",
    "invalid_code": "pending codes change",
    "must name existing tournaments": "existing tournaments change",
    "must not be given together with from_round": "two fields exclude each other",
    "or league_id is required, and not both": "one of two fields",
    "must be at most": "a setting limits the size of leagues",
    "must not be less than the number of members": "members change",
    "must not be the owner": "the request does not contain the owner",
    "must be another member of the league": "members change",
    "does not fit the question": "answers depend on the question",
    "cannot be played in this match": "the joker depends on the match",
    "requires the room id": "two parameters belong together",
    "must have your chat id as user_id": "the request does not contain the caller",
    "malformed_report": "each provider has another form of reports",
    "method_not_allowed": "only some providers report by GET",
    "must be `latest` or the `next_after`": "positions are opaque",
    "must not name a transaction of kind": "transactions change",
    "must be an absolute URL": "the standard of URLs allows more than browsers do",
    "must be `whsec_` and base64": "a pattern cannot express the padding of base64",
    "cannot have a score": "two fields must agree",
    "must have a score": "two fields must agree",
    "must be in the future": "depends on the current date",
    "must be given with the other score, or neither": "two fields belong together",
    "must be a list of types of messages": "webhook.test is a type, but only operators cause it",
    "event_started": "requests with a server key start matches",
    "needs both scores": "two fields belong together",
    "can be given only for a knockout match": "depends on the match",
    "must be a timestamp like": "a format does not limit years",
    "must be a cross-signing key": "a pattern cannot express a key whose name contains its value",
    "different ids of tournaments": "the description does not say that ids differ",
}


if __name__ != "__main__":
    import atexit
    import random

    import schemathesis
    from schemathesis.generation import GenerationMode
    from schemathesis.core.failures import AcceptedNegativeData
    from schemathesis.openapi.checks import EnsureResourceAvailability, RejectedPositiveData

    test_user = TestUser()
    statuses = collections.Counter()
    counting = threading.Lock()
    chance = random.Random(7)

    if CALLER != "without":

        @schemathesis.auth(refresh_interval=None)
        class Token:
            def get(self, case, context):
                return SERVER_KEY if CALLER == "key" else test_user.current()

            def set(self, case, token, context):
                case.headers = case.headers or {}
                case.headers["Authorization"] = f"Bearer {token}"

        @schemathesis.hook
        def map_case(context, case):
            """Puts existing ids into three of four valid requests; random ids would match nothing."""
            mode = case.meta.generation.mode if case.meta else None
            if mode == GenerationMode.POSITIVE and chance.random() < 0.75:
                test_user.current()
                path = case.operation.path
                for part in (case.path_parameters, case.query, case.body):
                    for name in list(part) if isinstance(part, dict) else []:
                        # The id of a chat message is also called `event_id`, and is not a number.
                        is_message = name == "event_id" and path.endswith(("/reports", "/messages/{event_id}"))
                        known = [] if is_message else test_user.names(path, name)
                        if known:
                            part[name] = chance.choice(known)
                if path in ("/api/code/verify", "/api/auth/login") and isinstance(case.body, dict):
                    phone = test_user.number()
                    case.body |= {"phone": phone, "code": test_user.code(phone)}
            return case

    @schemathesis.hook
    def filter_failure(context, failure, case, response):
        # A repeated key returns the first response again, also after another request has deleted the webhook.
        if isinstance(failure, EnsureResourceAvailability) and case.operation.path.startswith("/api/server/v1/webhooks"):
            return False
        if isinstance(failure, RejectedPositiveData):
            # Schemathesis reuses values of fields with the same name. The Matrix `user_id` (`@ada:example.org`) is not
            # the number that this parameter expects.
            if str((case.query or {}).get("user_id", "")).startswith("@"):
                return False
            # Neither is the id of a message (`$…`) the number of a match.
            if str((case.query or {}).get("event_id", "")).startswith("$"):
                return False
            refusal = response.json()
            # The rules of fixture documents are checked by the service only.
            if case.operation.path.endswith("/catalogue/import"):
                return False
            return not any(words in refusal["message"] or words == refusal["code"] for words in REFUSALS)
        # Without a token the service ignores the key, because a key belongs to a user.
        stranger = "Authorization" not in response.request.headers
        return not (isinstance(failure, AcceptedNegativeData) and stranger and "`Idempotency-Key`" in failure.message)

    @schemathesis.hook
    def after_call(context, case, response):
        with counting:
            statuses[f"{case.method} {case.operation.path} {response.status_code}"] += 1
        sent = response.request.headers.get("Authorization", "")
        # Forget a session that was refused or has just ended.
        if response.status_code == 401 or case.operation.path.endswith("/logout"):
            test_user.ended(sent.removeprefix("Bearer "))

    @atexit.register
    def keep():
        with COUNTS.open("a") as file:
            file.write(json.dumps({"caller": CALLER, "statuses": statuses}) + "\n")

else:
    path, what = pathlib.Path(sys.argv[1]), sys.argv[2]
    runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    total = sum(sum(run["statuses"].values()) for run in runs)
    if what == "answered":
        print(total)
        sys.exit()
    seconds, operations, failed = sys.argv[3:6]
    by_class = {"with": collections.Counter(), "without": collections.Counter(), "key": collections.Counter()}
    by_operation = collections.defaultdict(collections.Counter)
    for run in runs:
        for key, count in run["statuses"].items():
            operation, status = key.rsplit(" ", 1)
            by_class[run["caller"]][status] += count
            by_operation[operation][status] += count
    for operation in sorted(by_operation):
        print(operation, " ".join(f"{status}:{count}" for status, count in sorted(by_operation[operation].items())))

    def counts(caller):
        return ", ".join(f"{count:,} × {status}" for status, count in sorted(by_class[caller].items()))

    held = (
        f"{total:,} requests to {operations} operations in {seconds} s, every check passed, no panic, and the coins still "
        f"add up; with a token {counts('with')}; without one {counts('without')}; with a server key {counts('key')}"
    )
    if failed != "no":
        print(f"failed after {total:,} requests: {counts('with')}; {counts('without')}; {counts('key')}")
        sys.exit()
    line = {"what": "Schemathesis over both OpenAPI descriptions", "held": held}
    print(f"held: {line['what']}: {held}")
    if proof := os.environ.get("MATCHDAY_PROOF"):
        with open(proof, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
