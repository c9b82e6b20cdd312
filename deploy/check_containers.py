"""Runs the image and the compose file with podman, for deploy/check: `check_containers.py BINARY`.

Wraps the binary into the last stage of the Dockerfile, starts compose.yaml in production mode, and uses it as operators and
apps do, from the login to an upgrade under load. Removes everything afterwards. Requires podman, the base images (real ones, or
those of deploy/stand-ins/make), and podman-compose next to this Python.
"""

import concurrent.futures
import contextlib
import datetime
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAME = f"matchday-check-{os.getpid()}"
SERVICES = ("postgres", "redis", "nats", "synapse", "matchday-1", "matchday-2", "balancer")
# Requests a second while processes are replaced.
RATE = 20

# Accepts every message like Twilio, and prints it.
SMS = """
import http.server, json, urllib.parse
class Provider(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        print(json.dumps({"to": form["To"][0], "text": form["Body"][0]}), flush=True)
        body = json.dumps({"sid": "SM0"}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Provider).serve_forever()
"""


class Failure(Exception):
    """A check that did not hold."""


def require(condition, text):
    if not condition:
        raise Failure(text)


def run(*command, given=None, env=None, check=True, both=False):
    """Runs a command and returns its output, with that for errors if wanted. Files instead of pipes: podman's helpers outlive the command and keep them open."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        done = subprocess.run(command, input=given, stdout=out, stderr=err, env=env, check=False) if given is not None else \
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, check=False)
        out.seek(0)
        err.seek(0)
        text, errors = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    if check and done.returncode:
        # Without systemd, podman complains about timers of health checks.
        lines = [line for line in errors.splitlines() if "get systemd connection" not in line]
        raise Failure(f"{' '.join(command)[:200]} failed: " + "\n".join(lines[-20:]))
    return text + errors if both else text


def podman(*arguments, **options):
    return run("podman", *arguments, **options)


def until(what, seconds, condition):
    """Waits until a condition returns something, and returns it."""
    limit = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, Failure, ValueError, LookupError):
            if found := condition():
                return found
        require(time.monotonic() < limit, f"timeout after {seconds} s: {what}")
        time.sleep(0.2)


def call(url, token=None, method=None, **body):
    """Sends a request and returns the document of the response."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = json.dumps(body).encode() if body or method in ("POST", "PUT") else None
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=15) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise Failure(f"{method or 'GET'} {url} is {error.code}: {error.read().decode(errors='replace')[:300]}") from None


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Report:
    """Prints what was proven, with times."""

    def __init__(self):
        self.began = time.monotonic()

    def done(self, text):
        print(f"{text} ({time.monotonic() - self.began:.1f} s)", flush=True)
        self.began = time.monotonic()


class Stage:
    """The project of this check: images, settings, and compose."""

    def __init__(self, binary, work, image=f"localhost/{NAME}:current", profile=()):
        self.binary, self.work, self.image, self.profile = binary, work, image, profile
        self.app, self.chat, self.private, self.second, self.console, self.web = free_ports(6)
        self.subnet = f"172.30.{100 + os.getpid() % 100}"

    def build(self, revision):
        """Builds the last stage of the Dockerfile around the binary, as if the stage before had compiled it."""
        with open(f"{ROOT}/deploy/Dockerfile", encoding="utf-8") as file:
            last = re.search(r"^FROM debian.*", file.read(), re.M | re.S)[0]
        with open(f"{self.work}/image/Dockerfile", "w", encoding="utf-8") as file:
            file.write(f"FROM scratch AS build\nCOPY matchday /matchday\n{last}")
        podman("build", "--quiet", "--format", "docker", "--label", f"io.matchday.check={revision}", "--tag", self.image,
               f"{self.work}/image")

    def prepare(self):
        os.mkdir(f"{self.work}/image")
        run("objcopy", "--strip-debug", self.binary, f"{self.work}/image/matchday")
        values = run(f"{ROOT}/deploy/make-env")
        known = {"PUBLIC_URL": "https://api.example.org", "CHAT_URL": f"http://127.0.0.1:{self.chat}", "SERVER_NAME": "example.org",
                 "SMS_PROVIDERS": "twilio", "SMS_COUNTRIES": "US", "TWILIO_ACCOUNT_SID": "AC0", "TWILIO_AUTH_TOKEN": "secret",
                 "TWILIO_FROM": "+12015550100", "APP_PORT": self.app, "CHAT_PORT": self.chat, "PRIVATE_PORT": self.private,
                 "PRIVATE_PORT_2": self.second, "CONSOLE_PORT": self.console, "SUBNET": self.subnet, "COINS_PER_POINT": 2,
                 "TRUSTED_PROXIES": f"{self.subnet}.1/32", "POSTGRES_SHARED_BUFFERS": "128MB", "MATCHDAY_IMAGE": self.image}
        override = {"services": {"sms": {"image": "matrixdotorg/synapse:v1.163.2", "entrypoint": ["python", "-c", SMS],
                                         "tmpfs": ["/data"], "networks": {"outside": {}}}}}
        for service in ("matchday-1", "matchday-2"):
            override["services"][service] = {"environment": {"MATCHDAY_SMS__TWILIO_URL": "http://sms:8000/"}}
        limited = not self.can_raise_limits()
        if limited:
            # Podman raises the number of processes with the number of files.
            known["MAX_OPEN_FILES"] = 1024
            for service in ("matchday-1", "matchday-2", "balancer"):
                override["services"].setdefault(service, {})["ulimits"] = {"nproc": {"soft": 1024, "hard": 1024}}
        for name in known:
            values = re.sub(rf"^{name}=.*\n", "", values, flags=re.M)
        with open(f"{self.work}/env", "w", encoding="utf-8") as file:
            file.write(values + "".join(f"{name}={value}\n" for name, value in known.items()))
        with open(f"{self.work}/override.yaml", "w", encoding="utf-8") as file:
            yaml.safe_dump(override, file)
        return limited

    def can_raise_limits(self):
        try:
            podman("run", "--rm", "--ulimit", "nofile=65536:65536", "debian:bookworm-slim", "true")
            return True
        except Failure:
            return False

    podman_compose = f"{os.path.dirname(sys.executable)}/podman-compose"

    def arguments(self):
        return ("--project-name", NAME, "--env-file", f"{self.work}/env", "--file", f"{ROOT}/deploy/compose.yaml",
                "--file", f"{self.work}/override.yaml")

    def env(self):
        return {name: value for name, value in os.environ.items() if not name.startswith(("MATCHDAY_", "COMPOSE_"))}

    def compose(self, *arguments, **options):
        return run(self.podman_compose, *self.arguments(), *arguments, env=self.env(), **options)

    def inspect(self, service, what):
        return podman("inspect", "--format", what, f"{NAME}_{service}_1").strip()

    def api(self, path, *arguments, **body):
        return call(f"http://127.0.0.1:{self.app}{path}", *arguments, **body)

    def until_ready(self):
        parts = {part: "up" for part in ("homeserver", "nats", "postgres", "redis")}
        for port in (self.private, self.second):
            until("every process is ready with all dependencies", 90,
                  lambda port=port: call(f"http://127.0.0.1:{port}/readyz")["parts"] == parts)
        until("the balancer forwards requests", 30, lambda: self.api("/readyz")["status"] == "ready")

    def matchday(self, *arguments, **options):
        return self.compose("exec", "-T", "matchday-1", "matchday", *arguments, **options)

    def resident(self, service):
        with open(f"/proc/{self.inspect(service, '{{.State.Pid}}')}/status", encoding="utf-8") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) // 1024

    def log_in(self, phone):
        self.api("/api/code/request", phone=phone)
        sent = until("the provider received a code", 20, lambda: [
            message["text"] for message in map(json.loads, podman("logs", f"{NAME}_sms_1").splitlines()) if message["to"] == phone])
        code = re.search(r"\d{6}", sent[-1])[0]
        return self.api("/api/code/verify", phone=phone, code=code)["data"]


def containers(stage):
    """Users, privileges, ports and health checks of the running containers."""
    for service in ("matchday-1", "matchday-2"):
        require(stage.inspect(service, "{{.Config.User}}") == "10001:10001", f"{service} does not run as user 10001")
        pid = stage.inspect(service, "{{.State.Pid}}")
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            status = dict(line.rstrip().split(":\t", 1) for line in file if ":\t" in line)
        require(status["Uid"].split()[0] == "10001", f"{service} runs as {status['Uid']}")
        require(int(status["CapBnd"], 16) == 0 and status["NoNewPrivs"] == "1", f"{service} has privileges")
    for service in ("matchday-1", "matchday-2", "balancer"):
        require(stage.inspect(service, "{{.HostConfig.ReadonlyRootfs}}") == "true", f"{service} can write files")
    for service in SERVICES:
        podman("healthcheck", "run", f"{NAME}_{service}_1")
        for host in re.findall(r"HostIp:([^ ]*)", stage.inspect(service, "{{.HostConfig.PortBindings}}")):
            require(host == "127.0.0.1", f"{service} is published at {host}")
    # The homeserver is in two networks, but not in that of NATS.
    podman("exec", f"{NAME}_synapse_1", "curl", "-s", "--max-time", "3", f"http://{stage.subnet}.11:8080/healthz")
    reach = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
    nats = stage.inspect("nats", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")
    for host, port in (("nats", 4222), (nats, 4222)):
        try:
            podman("exec", f"{NAME}_synapse_1", "python", "-c", reach, host, str(port))
        except Failure:
            continue
        raise Failure(f"the homeserver reaches NATS at {host}")


def document(start, **result):
    match = {"key": "final", "home": "rovers", "away": "city", "start_time": start, "status": "scheduled", "home_score": None,
             "away_score": None} | result
    return json.dumps({"sport": {"slug": "football", "name": "Football"}, "tournament": {"slug": "cup", "name": "Cup"},
                       "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
                       "matches": [match, match | {"key": "next", "start_time": "2099-01-01T12:00:00Z", "status": "scheduled",
                                                   "home_score": None, "away_score": None}]}).encode()


class Evening:
    """Two fans and a match: prediction, chat, result."""

    def __init__(self, stage):
        self.stage = stage
        self.ada, self.bob = stage.log_in("+12015550123"), stage.log_in("+12015550124")
        self.homeserver = f"http://127.0.0.1:{stage.chat}/_matrix/client/v3"

    def play(self, report):
        stage, ada = self.stage, self.ada["token"]
        kick_off = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=25)
        start = kick_off.strftime("%Y-%m-%dT%H:%M:%SZ")
        stage.matchday("fixtures", "import", "-", given=document(start))
        match, self.next = (event["id"] for event in sorted(stage.api("/api/auth/events", ada)["data"], key=lambda event: event["start_time"]))
        stage.api("/api/auth/predictions", ada, event_id=match, prediction="home", score_prediction={"home": 2, "away": 1}, confidence=70)
        self.room = until("the match has a room", 30, lambda: stage.api(f"/api/auth/chat-rooms?event_id={match}", ada)["data"][0]["room_id"])
        report.done("logged in with codes from the SMS provider, imported a match and predicted it")

        # Each fan joins through the service, and then uses only the homeserver.
        for fan in (self.ada, self.bob):
            stage.api(f"/api/auth/chat-rooms/{urllib.parse.quote(self.room)}/join", fan["token"], "POST")
        self.say("Come on Rovers!")
        until("the other fan reads the message", 30, lambda: "Come on Rovers!" in self.messages())
        until("the service received events of the homeserver", 30, lambda: re.search(r"last push: 2", stage.matchday("memberships", "status")))
        report.done("chatted with the Matrix API; the homeserver pushed events through the balancer")

        # Results of matches that have not started are refused.
        time.sleep(max(0, kick_off.timestamp() + 1 - time.time()))
        stage.matchday("fixtures", "import", "-", given=document(start, status="finished", home_score=2, away_score=1))
        self.points = until("the prediction has points", 30, lambda: self.prediction()["points_earned"])
        self.balance = until("the payout", 60, lambda: [entry for entry in self.coins()["history"] if entry["event_id"] == match])[0]["amount"]
        require(self.balance == 2 * self.points, f"{self.points} points paid {self.balance} coins")
        until("the leaderboard has the score", 30, lambda: self.score() == self.points)
        stage.matchday("coins", "audit")
        report.done(f"imported the result: {self.points} points, first of the leaderboard, {self.balance} coins")

    def say(self, text):
        room, transaction = urllib.parse.quote(self.room), time.monotonic_ns()
        call(f"{self.homeserver}/rooms/{room}/send/m.room.message/{transaction}", self.ada["matrix_credentials"]["access_token"], "PUT",
             msgtype="m.text", body=text)

    def messages(self):
        page = call(f"{self.homeserver}/rooms/{urllib.parse.quote(self.room)}/messages?dir=b&limit=50", self.bob["matrix_credentials"]["access_token"])
        return [event["content"].get("body") for event in page["chunk"]]

    def prediction(self):
        return self.stage.api("/api/auth/predictions?status=settled", self.ada["token"])["data"][0]

    def coins(self):
        return self.stage.api("/api/auth/coins", self.ada["token"])["data"]

    def score(self):
        return self.stage.api("/api/auth/leaderboards", self.ada["token"])["data"]["top"][0]["points"]

    def is_kept(self):
        require(self.prediction()["points_earned"] == self.points, "the points are lost")
        until("the leaderboard is filled", 30, lambda: self.score() == self.points)
        require(self.coins()["balance"] >= self.balance, "the coins are lost")
        until("the messages are kept", 60, lambda: "Come on Rovers!" in self.messages())


class Load:
    """Requests at a steady rate, while processes are replaced. Counts every response that is not the expected one."""

    def __init__(self, stage, fan, match):
        self.stage, self.fan, self.match = stage, fan, match
        self.requests, self.failures, self.slowest = 0, [], 0.0
        self.ended = threading.Event()
        self.pool = concurrent.futures.ThreadPoolExecutor(16)
        self.thread = threading.Thread(target=self.run)

    def once(self, number):
        began = time.monotonic()
        try:
            if number % 4 == 0:
                self.stage.api("/api/auth/predictions", self.fan["token"], event_id=self.match, prediction="home", confidence=number % 100)
            else:
                path = ("", "/api/auth/events", "/api/auth/leaderboards", "/api/auth/coins")[number % 4]
                self.stage.api(path, self.fan["token"])
        except (Failure, OSError, ValueError) as error:
            self.failures.append(str(error))
        self.requests += 1
        self.slowest = max(self.slowest, time.monotonic() - began)

    def run(self):
        number = 0
        while not self.ended.wait(1 / RATE):
            self.pool.submit(self.once, number)
            number += 1
        self.pool.shutdown()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def upgrade(stage, evening, report):
    """Replaces both processes with a rebuilt image, under load."""
    before = {service: stage.inspect(service, "{{.Image}}") for service in ("matchday-1", "matchday-2")}
    with Load(stage, evening.ada, evening.next) as load:
        stage.build("second")
        time.sleep(2)
        run(f"{ROOT}/deploy/upgrade", *stage.arguments(), env=stage.env() | {"MATCHDAY_COMPOSE": stage.podman_compose})
        time.sleep(2)
    for service, image in before.items():
        require(stage.inspect(service, "{{.Image}}") != image, f"{service} still runs the old image")
        require("io.matchday.check:second" in stage.inspect(service, "{{.Config.Labels}}"), f"{service} does not run the rebuilt image")
    require(not load.failures, f"{len(load.failures)} of {load.requests} requests failed during the upgrade, the first: {load.failures[:1]}")
    report.done(f"upgraded to a rebuilt image: {load.requests} requests, none failed, the slowest took {load.slowest * 1000:.0f} ms")


def main(binary):
    report = Report()
    with tempfile.TemporaryDirectory() as work:
        os.chmod(work, 0o755)
        stage = Stage(binary, work)
        limited = stage.prepare()
        try:
            stage.build("first")
            size = int(podman("image", "inspect", "--format", "{{.Size}}", stage.image))
            base = int(podman("image", "inspect", "--format", "{{.Size}}", "debian:bookworm-slim"))
            report.done(f"built the image: {size / 1e6:.0f} MB, {(size - base) / 1e6:.0f} MB more than its base")
            stage.compose("up", "-d", "--no-build")
            stage.until_ready()
            note = "; this machine refuses to raise limits: 1,024 open files" if limited else ""
            report.done(f"started {len(SERVICES)} services in production mode{note}")
            containers(stage)
            report.done(f"users, privileges, networks, ports and health checks are right; a process uses {stage.resident('matchday-1')} MB at rest")
            evening = Evening(stage)
            evening.play(report)
            stage.compose("restart")
            stage.until_ready()
            evening.is_kept()
            report.done("restarted all services: sessions, points, coins and messages are kept")
            upgrade(stage, evening, report)
            stage.compose("down")
            require(not podman("ps", "-aq", "--filter", f"name={NAME}").strip(), "containers are left after down")
            stage.compose("up", "-d", "--no-build")
            stage.until_ready()
            evening.is_kept()
            evening.say("Still here")
            report.done("down and up: sessions, points, coins and messages are kept")
        except Failure:
            for service in SERVICES:
                print(f"--- {service}: " + "\n".join(run("podman", "logs", "--tail", "15", f"{NAME}_{service}_1", check=False, both=True).splitlines()), file=sys.stderr)
            raise
        finally:
            if not os.environ.get("MATCHDAY_CHECK_KEEP"):
                stage.compose("down", "--volumes", "--timeout", "5", check=False)
                podman("rmi", "--force", stage.image, check=False)
                podman("image", "prune", "--force", check=False)


if __name__ == "__main__":
    if not shutil.which("podman"):
        sys.exit("podman is missing")
    try:
        main(sys.argv[1])
    except Failure as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
