"""Lets Schemathesis be somebody: logs in by SMS as apps do, puts what really exists into valid requests, and counts what
was answered. Run by itself, it tells what was counted (dev/schemathesis does so)."""

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


def ask(method, path, token=None, body=None):
    """Asks the service; what it does not grant is an error, except where a list may be empty."""
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


class Somebody:
    """A user with a token, who logs in anew when the token was ended by a request of the run."""

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
        login = ask("POST", "/api/code/verify", body={"phone": phone, "code": self.code(phone), "username": username})
        return login["token"], login["user"]["id"]

    def current(self):
        with self.lock:
            if self.token is None:
                # The phone may be another one by now: a request of the run can have moved it.
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
        """What there is to name in a request."""
        _, other = self.log_in(self.number())
        room = ask("POST", "/api/auth/chat-room", self.token, {"name": f"Room {os.urandom(4).hex()}", "is_private": False})
        events = [event["id"] for event in ask("GET", "/api/auth/events", self.token)]
        for event in events[:3]:
            ask("POST", "/api/auth/predictions", self.token, {"event_id": event, "prediction": "home"})
        self.known = {
            "event": events,
            "event_id": events,
            "team_id": [team["id"] for team in ask("GET", "/api/auth/teams", self.token)],
            "tournament_id": [found["id"] for found in ask("GET", "/api/auth/tournaments", self.token)],
            "sport_id": [found["id"] for found in ask("GET", "/api/auth/sports", self.token)],
            "room": [room["room_id"]],
            "user": [other],
            "user_id": [self.user, other],
        }

    def names(self, path, name):
        """What exists that a request to this path may call so."""
        if name != "id":
            return self.known.get(name, [])
        if path.startswith("/api/auth/me/notifications/push/"):
            return [found["id"] for found in ask("GET", "/api/auth/me/notifications", self.current())["push"]]
        listed = path.removesuffix("/explanation").removesuffix("/{id}")
        # The oldest first: the session that asks is the newest.
        return [found["id"] for found in ask("GET", listed, self.current())][-1:]

    def code(self, phone):
        ask("POST", "/api/code/request", body={"phone": phone})
        return ask("GET", "/api/logs/sms?status=sent&phone=" + urllib.parse.quote(phone))[0]["code"]


# A request that fits its description may be refused for what no schema can say. Each such refusal is named here with why;
# every other one is a failure.
REFUSALS = {
    "idempotency_key_reused": "whether a key was used for another request is known to the service only",
    "insufficient_balance": "what is in a wallet changes",
    "already_claimed": "once a day",
    "must be one that an answer gave": "cursors are opaque",
    "contradicts the prediction": "two fields must agree",
    "is required with": "two fields belong together",
    "must be all with a tournament": "two parameters must agree",
    "is required, and not both": "one of two fields",
    "must be somebody else": "who is asking is not in the request",
    "must be that of a user": "who there is changes",
    "must be that of a message in this room": "what was said in a room changes",
    "has no pending verification": "which codes are out changes",
    "is not the one that the code was sent to": "which codes are out changes",
    "was chosen already and stays": "a username is chosen once",
    "is taken": "which usernames are free changes",
    "was used for another amount": "which references were used changes",
    "must be a phone number": "numbering plans are no pattern",
    "must be a number that can get text messages": "numbering plans are no pattern",
    "must be an e-mail address": "more is an address by the standard than by what browsers take",
    "must name an existing match": "which matches there are changes",
    "must name existing teams": "which teams there are changes",
    "must be the id of a room": "its length counts in bytes",
    "must be a date in the past": "depends on the day",
    "must have p256dh and auth": "points of a curve are no pattern",
    "must be the address of a push service": "what a host may be called is no pattern",
    "must have from and until": "the names of time zones are no pattern",
    "invalid_code": "which codes are out changes",
}


if __name__ != "__main__":
    import atexit
    import random

    import schemathesis
    from schemathesis.generation import GenerationMode
    from schemathesis.core.failures import AcceptedNegativeData
    from schemathesis.openapi.checks import RejectedPositiveData

    somebody = Somebody()
    statuses = collections.Counter()
    counting = threading.Lock()
    chance = random.Random(7)

    if os.environ["HOSTILE_TOKEN"] == "with":

        @schemathesis.auth(refresh_interval=None)
        class Token:
            def get(self, case, context):
                return somebody.current()

            def set(self, case, token, context):
                case.headers = case.headers or {}
                case.headers["Authorization"] = f"Bearer {token}"

        @schemathesis.hook
        def map_case(context, case):
            """Three of four valid requests name what exists; nothing would be found otherwise."""
            mode = case.meta.generation.mode if case.meta else None
            if mode == GenerationMode.POSITIVE and chance.random() < 0.75:
                somebody.current()
                path = case.operation.path
                for part in (case.path_parameters, case.query, case.body):
                    for name in list(part) if isinstance(part, dict) else []:
                        # The id of a message is called `event_id` too, and is no number.
                        known = [] if name == "event_id" and path.endswith("/reports") else somebody.names(path, name)
                        if known:
                            part[name] = chance.choice(known)
                if path in ("/api/code/verify", "/api/auth/login") and isinstance(case.body, dict):
                    phone = somebody.number()
                    case.body |= {"phone": phone, "code": somebody.code(phone)}
            return case

    @schemathesis.hook
    def filter_failure(context, failure, case, response):
        if isinstance(failure, RejectedPositiveData):
            # It takes fields of one name for one thing. The `user_id` of chat, `@ada:example.org`, is not the number that the
            # description asks for.
            if str((case.query or {}).get("user_id", "")).startswith("@"):
                return False
            told = response.json()
            return not any(words in told["message"] or words == told["code"] for words in REFUSALS)
        # Without a token there is nobody to whom a key could belong, so nothing is read into it.
        stranger = "Authorization" not in response.request.headers
        return not (isinstance(failure, AcceptedNegativeData) and stranger and "`Idempotency-Key`" in failure.message)

    @schemathesis.hook
    def after_call(context, case, response):
        with counting:
            statuses[f"{case.method} {case.operation.path} {response.status_code}"] += 1
        sent = response.request.headers.get("Authorization", "")
        # A session of the run's own that is refused, or that has just been ended, is of no more use.
        if response.status_code == 401 or case.operation.path.endswith("/logout"):
            somebody.ended(sent.removeprefix("Bearer "))

    @atexit.register
    def keep():
        with COUNTS.open("a") as file:
            file.write(json.dumps({"token": os.environ["HOSTILE_TOKEN"], "statuses": statuses}) + "\n")

else:
    path, what = pathlib.Path(sys.argv[1]), sys.argv[2]
    runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    total = sum(sum(run["statuses"].values()) for run in runs)
    if what == "answered":
        print(total)
        sys.exit()
    seconds, operations, failed = sys.argv[3:6]
    by_class = {"with": collections.Counter(), "without": collections.Counter()}
    by_operation = collections.defaultdict(collections.Counter)
    for run in runs:
        for key, count in run["statuses"].items():
            operation, status = key.rsplit(" ", 1)
            by_class[run["token"]][status] += count
            by_operation[operation][status] += count
    for operation in sorted(by_operation):
        print(operation, " ".join(f"{status}:{count}" for status, count in sorted(by_operation[operation].items())))

    def told(token):
        return ", ".join(f"{count:,} of {status}" for status, count in sorted(by_class[token].items()))

    held = (
        f"{total:,} requests to {operations} operations in {seconds} s, every check passed, no panic, and the coins still "
        f"add up; with a token {told('with')}; without one {told('without')}"
    )
    if failed != "no":
        print(f"failed after {total:,} requests: {told('with')}; {told('without')}")
        sys.exit()
    line = {"section": "hostile", "what": "Schemathesis over the whole description of the interface", "held": held}
    print(f"held: {line['what']}: {held}")
    if proof := os.environ.get("MATCHDAY_PROOF"):
        with open(proof, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
