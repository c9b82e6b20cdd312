"""Shared by deploy/rehearse-restore and deploy/rehearse-failover: a private deployment, load, and checks.

A site is PostgreSQL with both databases, Redis, NATS, Synapse and the service, as processes on free ports of 127.0.0.1
in one folder. Users write through the API while the rehearsal breaks something. Each write is noted with the times at
which it was sent and acknowledged, and compared with the databases afterwards.

Needs the programs that dev/up and `dev/install-test-tools pgbackrest` install, and a built binary.
"""

import asyncio
import base64
import contextlib
import csv
import http.client
import io
import itertools
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import defaultdict
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "matchday"
MATCHDAY = pathlib.Path(
    os.environ.get("MATCHDAY_BIN")
    or pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or CACHE / "target") / "debug" / "matchday"
)
VERIFY = MATCHDAY.with_name("matchday-verify")
PG_BIN = pathlib.Path(os.environ.get("MATCHDAY_DEV_PG_BIN") or "/usr/lib/postgresql/15/bin")
VENV = ROOT / ".dev" / "venv" / "bin"
SERVER_NAME = "matchday.localhost"
STANZA = "matchday"

# PostgreSQL refuses to run as root, so root runs it and pgBackRest as another user.
PG_USER = "postgres" if os.geteuid() == 0 else None
AS_PG = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if PG_USER else []

# Commands of the service that check the stored data, and must exit with 0. Add the command of a new kind of data here,
# and a way to break it in `Checks.self_test`.
CHECKS = {
    "coins": ["coins", "audit"],
    "scores": ["scores", "rebuild", "--dry-run"],
}


class Failed(Exception):
    """The rehearsal found a violation, or could not be carried out."""


class Refused(Failed):
    """An API responded with an error; this may be temporary."""


def say(text=""):
    print(text, flush=True)


def section(title):
    say(f"--- {title}")


def wait_until(what, seconds, condition, pause=0.1):
    """Waits for a condition; returns its value."""
    began, last = time.monotonic(), None
    while time.monotonic() - began < seconds:
        try:
            if value := condition():
                return value
        except (OSError, http.client.HTTPException, subprocess.CalledProcessError, ValueError, Refused) as error:
            last = error
        time.sleep(pause)
    raise Failed(f"timeout after {seconds} s: {what}" + (f" ({last})" if last else ""))


def free_ports(number):
    """Ports that are free now. All are held open until the last is known, so that they differ."""
    with contextlib.ExitStack() as held:
        ports = []
        for _ in range(number):
            one = held.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            ports.append(one.getsockname()[1])
        return ports


def run(command, *, env=None, check=True, text=None, timeout=600):
    """Runs a command and returns its standard output; its standard error is part of the exception."""
    command = [str(word) for word in command]
    done = subprocess.run(command, env=env, input=text, capture_output=True, text=True, timeout=timeout, cwd="/")
    if check and done.returncode != 0:
        raise Failed(f"{' '.join(command)} exited with {done.returncode}: {(done.stdout + done.stderr).strip()[-2000:]}")
    return done


def check_programs(*further):
    wanted = {
        MATCHDAY: "build it with cargo build --bin matchday, or set MATCHDAY_BIN",
        VERIFY: "build it with cargo build --bin matchday-verify",
        PG_BIN / "postgres": "run dev/up",
        VENV / "nats-server": "run dev/up",
        VENV / "python": "run dev/up",
    }
    for path, hint in wanted.items():
        if not os.access(path, os.X_OK):
            raise Failed(f"{path} does not exist: {hint}")
    for name in ("redis-server", *further):
        if not shutil.which(name):
            raise Failed(f"{name} does not exist: run dev/up and dev/install-test-tools")


# --- processes ---------------------------------------------------------------------------------------------------


class Processes:
    """Processes that the rehearsal started. All of them end with it."""

    def __init__(self):
        self.running = {}

    def start(self, name, command, log, env=None):
        with open(log, "ab") as output:
            self.running[name] = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", env=env, start_new_session=True,
            )
        return self.running[name]

    def alive(self, name):
        return self.running[name].poll() is None

    def kill(self, names=None):
        """Ends processes like a power failure: freezes all at the same time, then kills them."""
        names = [name for name in self.running if names is None or name in names]
        # Children of PostgreSQL are in sessions of their own.
        pids = [pid for name in names for pid in family(self.running[name].pid)]
        for order in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, order)
        for name in names:
            self.running.pop(name).wait()

    def stop(self, name, order=signal.SIGTERM):
        one = self.running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            one.send_signal(order)
        try:
            one.wait(30)
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()


def family(pid):
    """A process and its descendants."""
    children = defaultdict(list)
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children[int(entry.read_text().rsplit(")", 1)[1].split()[1])].append(int(entry.parent.name))
    found = [pid]
    for one in found:
        found += children[one]
    return found


def kill_by_folder(folder):
    """Kills detached helpers, such as pgBackRest's background archiving, by the folder on their command lines."""
    marker = f"{folder}/".encode()
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        pid = int(entry.parent.name)
        with contextlib.suppress(OSError):
            if pid != os.getpid() and marker in entry.read_bytes():
                os.kill(pid, signal.SIGKILL)


# --- a site ------------------------------------------------------------------------------------------------------


class Secrets:
    """Secrets that all sites of a deployment share, including the homeserver's signing key."""

    def __init__(self):
        names = ("as_token hs_token unused_hs_token push_token registration_secret macaroon_secret form_secret code_key "
                 "owner service synapse replication cipher")
        for name in names.split():
            setattr(self, name, secrets.token_hex(32))
        # NATS reads a variable that starts with a digit as a number.
        self.nats, self.copy = (f"p{secrets.token_hex(16)}" for _ in range(2))
        self.signing_key = "ed25519 a_dev " + base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=") + "\n"


class Site:
    """All processes of a deployment, in one folder."""

    def __init__(self, folder, shared, name="site"):
        self.name, self.folder, self.shared = name, pathlib.Path(folder), shared
        self.processes = Processes()
        (self.pg_port, self.redis_port, self.nats_port, self.nats_http_port, self.synapse_port, self.app_port,
         self.public_port, self.leaf_port) = free_ports(8)
        self.data = self.folder / "postgres"
        self.socket = self.folder / "socket"
        self.repository = None
        self.nats_user = ""
        self.folder.mkdir()
        for part in ("log", "synapse", "synapse/media"):
            (self.folder / part).mkdir()
        self.own_folder("socket")
        (self.folder / "synapse" / "signing.key").write_text(shared.signing_key)

    def own_folder(self, name):
        """Creates a folder that belongs to the user of PostgreSQL."""
        path = self.folder / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if PG_USER:
            shutil.chown(path, PG_USER, PG_USER)
        return path

    def own_file(self, path, text):
        path.write_text(text)
        path.chmod(0o600)
        if PG_USER:
            shutil.chown(path, PG_USER, PG_USER)

    def log(self, name):
        return self.folder / "log" / f"{name}.log"

    # --- PostgreSQL ---

    def initialise(self):
        """Creates the roles and databases with deploy/postgres-init.sh."""
        self.own_folder("postgres")
        run([*AS_PG, PG_BIN / "initdb", "-D", self.data, "-U", "postgres", "--auth-local=trust",
             "--auth-host=scram-sha-256", "--locale=C.UTF-8", "--encoding=UTF8", "--data-checksums"])
        with open(self.data / "postgresql.conf", "a") as file:
            file.write("include 'rehearsal.conf'\n")
        self.configure()
        self.start_postgres()
        script = self.folder / "socket" / "init.sh"
        shutil.copy(ROOT / "deploy" / "postgres-init.sh", script)
        script.chmod(0o644)
        run([*AS_PG, "bash", script], env={
            "PATH": f"{PG_BIN}:{os.environ['PATH']}", "PGHOST": str(self.socket), "PGPORT": str(self.pg_port),
            "POSTGRES_USER": "postgres", "OWNER_PASSWORD": self.shared.owner, "SERVICE_PASSWORD": self.shared.service,
            "SYNAPSE_PASSWORD": self.shared.synapse,
        })

    def configure(self, *further):
        """Writes the settings of this server, on top of the shipped ones for archiving or for a second site."""
        shipped = (ROOT / "deploy" / ("pgbackrest" if self.repository else "second-site") / "postgresql.conf").read_text()
        lines = [
            f"port = {self.pg_port}", "listen_addresses = '127.0.0.1'", f"unix_socket_directories = '{self.socket}'",
            "max_connections = 150", "shared_buffers = 256MB", "timezone = 'UTC'", "log_timezone = 'UTC'",
            "log_line_prefix = '%m [%p] %q%u@%d '",
            # Killed servers leave nothing behind outside their folder.
            "dynamic_shared_memory_type = mmap",
            *further,
        ]
        self.own_file(self.data / "rehearsal.conf", shipped + "\n".join(lines) + "\n")

    def start_postgres(self, seconds=120, standby=False):
        self.processes.start("postgres", [*AS_PG, PG_BIN / "postgres", "-D", self.data], self.log("postgres"), self.pg_env())

        def is_running():
            if not self.processes.alive("postgres"):
                raise Failed(f"PostgreSQL exited: {self.log('postgres').read_text()[-2000:]}")
            return self.sql("postgres", "select pg_is_in_recovery()") == [["t" if standby else "f"]]

        wait_until("PostgreSQL accepts connections", seconds, is_running, 0.05)

    def kill(self):
        """Everything ends at once, as in a power failure."""
        segment = self.shared_segment()
        self.processes.kill()
        kill_by_folder(self.folder)
        if segment:
            run(["ipcrm", "-m", segment], check=False)

    def shared_segment(self):
        """Id of the System V segment with which PostgreSQL protects its data directory. A killed server leaves it."""
        with contextlib.suppress(OSError, IndexError):
            return (self.data / "postmaster.pid").read_text().split("\n")[6].split()[1]

    def sql(self, database, statement, user="postgres"):
        """Runs a statement through the socket, and returns its rows as lists of texts."""
        command = [PG_BIN / "psql", "-XqtA", "--csv", "-v", "ON_ERROR_STOP=1", "-h", self.socket, "-p", self.pg_port,
                   "-U", user, "-d", database, "-f", "-"]
        done = run([*AS_PG, *command], check=False, text=statement)
        if done.returncode != 0:
            raise subprocess.CalledProcessError(done.returncode, "psql", done.stdout, done.stderr.strip())
        return list(csv.reader(io.StringIO(done.stdout)))

    def value(self, database, statement):
        """The first value of the first row; empty if there is none."""
        rows = self.sql(database, statement)
        return rows[0][0] if rows else ""

    # --- pgBackRest ---

    def use_repository(self, repository):
        """Archives to this folder, with the shipped settings. Variables replace the paths, which differ here."""
        self.repository = repository
        for name in ("spool", "lock", "pgbackrest-log", "none"):
            self.own_folder(name)
        self.own_file(self.folder / "pgbackrest.conf", (ROOT / "deploy" / "pgbackrest" / "pgbackrest.conf").read_text())

    def pg_env(self, data=None):
        env = {"PATH": f"{PG_BIN}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
        if self.repository:
            env |= {
                "PGBACKREST_CONFIG": self.folder / "pgbackrest.conf",
                "PGBACKREST_CONFIG_INCLUDE_PATH": self.folder / "none",
                "PGBACKREST_REPO1_PATH": self.repository, "PGBACKREST_REPO1_CIPHER_PASS": self.shared.cipher,
                "PGBACKREST_SPOOL_PATH": self.folder / "spool", "PGBACKREST_LOCK_PATH": self.folder / "lock",
                "PGBACKREST_LOG_PATH": self.folder / "pgbackrest-log", "PGBACKREST_PG1_PATH": data or self.data,
                "PGBACKREST_PG1_PORT": self.pg_port, "PGBACKREST_PG1_SOCKET_PATH": self.socket,
            }
        return {name: str(value) for name, value in env.items()}

    def pgbackrest(self, *arguments, data=None):
        done = run([*AS_PG, "pgbackrest", f"--stanza={STANZA}", *arguments], env=self.pg_env(data))
        with open(self.log("pgbackrest"), "a") as file:
            file.write(f"$ pgbackrest {' '.join(arguments)}\n{done.stdout}{done.stderr}")
        return done.stdout

    # --- Redis, NATS, Synapse ---

    def render(self, template):
        text = (ROOT / "dev" / "templates" / template).read_text()
        values = {"dev": self.folder, "server_name": SERVER_NAME, **vars(self), **vars(self.shared)}
        return re.sub(r"@(\w+)@", lambda found: str(values[found[1]]), text)

    def start_redis(self):
        folder = self.folder / "redis"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "redis.conf").write_text(self.render("redis.conf"))
        self.processes.start("redis", ["redis-server", folder / "redis.conf"], self.log("redis"))

    def start_nats(self, wipe=True, role=None, active=None):
        """Starts NATS alone, or with the settings of deploy/second-site as the `active` or the `standby` site."""
        folder, env = self.folder / "nats", None
        if wipe:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        (folder / "nats.conf").write_text(self.render("nats.conf"))
        if role:
            addresses = {"0.0.0.0:4222": f"127.0.0.1:{self.nats_port}", "127.0.0.1:8222": f"127.0.0.1:{self.nats_http_port}",
                         "0.0.0.0:7422": f"127.0.0.1:{self.leaf_port}", "/data": str(folder / "data")}
            for name in ("common", "active", "standby"):
                text = (ROOT / "deploy" / "second-site" / f"nats-{name}.conf").read_text()
                for shipped, here in addresses.items():
                    text = text.replace(f'"{shipped}"', f'"{here}"')
                (folder / f"nats-{name}.conf").write_text(text)
            env = {"SITE": self.name, "NATS_PASSWORD": self.shared.nats, "COPY_PASSWORD": self.shared.copy,
                   "ACTIVE_SITE": f'"nats://copy:{self.shared.copy}@127.0.0.1:{active}"'}
        name = f"nats-{role}.conf" if role else "nats.conf"
        self.nats_user = f"matchday:{self.shared.nats}@" if role else ""
        self.processes.start("nats", [VENV / "nats-server", "-c", folder / name], self.log("nats"), env)
        wait_until("NATS", 30, lambda: Api(self.nats_http_port).get("/healthz"), 0.02)

    def work_copy(self, command, *arguments):
        url = f"nats://copy:{self.shared.copy}@127.0.0.1:{self.nats_port}"
        return run([sys.executable, ROOT / "deploy" / "second-site" / "work-copy", command, url, *arguments]).stdout.strip()

    def nats_url(self):
        return f"nats://{self.nats_user}127.0.0.1:{self.nats_port}"

    def start_synapse(self):
        folder = self.folder / "synapse"
        for name in ("homeserver.yaml", "appservice.yaml", "appservice-push.yaml", "synapse-log.yaml"):
            text = self.render(name)
            # A role and a password of its own, as deploy/postgres-init.sh creates them.
            text = text.replace("    user: matchday\n", f"    user: synapse\n    password: {self.shared.synapse}\n")
            (folder / name.removeprefix("synapse-")).write_text(text)
        command = [VENV / "python", "-m", "synapse.app.homeserver", "-c", folder / "homeserver.yaml"]
        self.processes.start("synapse", command, self.log("synapse"))

    def wait_for_synapse(self):
        def responds():
            if not self.processes.alive("synapse"):
                raise Failed(f"Synapse exited: {self.log('synapse').read_text()[-2000:]}")
            return Api(self.synapse_port).get("/_matrix/client/versions")

        wait_until("Synapse", 180, responds)

    # --- the service ---

    def settings(self, owner=False):
        shared, base = self.shared, f"@127.0.0.1:{self.pg_port}/matchday"
        settings = {
            # Development: codes are read through the API instead of a phone. The roles are those of production.
            "MATCHDAY_ENV": "local",
            "MATCHDAY_DATABASE__URL": f"postgres://matchday_service:{shared.service}{base}",
            "MATCHDAY_REDIS__URL": f"redis://127.0.0.1:{self.redis_port}",
            "MATCHDAY_NATS__URL": self.nats_url(),
            "MATCHDAY_MATRIX__HOMESERVER_URL": f"http://127.0.0.1:{self.synapse_port}",
            "MATCHDAY_MATRIX__SERVER_NAME": SERVER_NAME,
            "MATCHDAY_MATRIX__AS_TOKEN": shared.as_token,
            "MATCHDAY_MATRIX__HS_TOKEN": shared.hs_token,
            "MATCHDAY_MATRIX__PUSH_TOKEN": shared.push_token,
            "MATCHDAY_CODES__KEYS": f"1:{shared.code_key}",
            "MATCHDAY_SMS__PROVIDERS": "console",
            "MATCHDAY_HTTP__LISTEN": f"127.0.0.1:{self.public_port}",
            "MATCHDAY_HTTP__PRIVATE_LISTEN": f"127.0.0.1:{self.app_port}",
            "MATCHDAY_CONSOLE__ENABLED": "false",
            "MATCHDAY_COINS__WELCOME": "1000000",
            "MATCHDAY_COINS__PER_POINT": "2",
            "MATCHDAY_LOG__FORMAT": "json",
        }
        if owner:
            settings["MATCHDAY_DATABASE__OWNER_URL"] = f"postgres://matchday_owner:{shared.owner}{base}"
        return settings

    def matchday(self, *arguments, check=True, text=None, owner=False):
        """Runs a command of the service."""
        settings = self.settings(owner) | {"MATCHDAY_LOG__FILTER": "warn"}
        return run([MATCHDAY, *arguments], env=settings, check=check, text=text)

    def start_service(self):
        self.processes.start("service", [MATCHDAY, "serve"], self.log("service"), self.settings())

    def wait_for_service(self):
        def is_ready():
            if not self.processes.alive("service"):
                raise Failed(f"the service exited: {self.log('service').read_text()[-2000:]}")
            return set(Api(self.app_port).get("/readyz")["parts"].values()) == {"up"}

        wait_until("the service is ready", 120, is_ready, 0.05)

    def start_others(self):
        """Starts everything but PostgreSQL and NATS, and waits until the service reaches all dependencies."""
        self.start_redis()
        self.start_synapse()
        self.start_service()
        self.wait_for_synapse()
        self.wait_for_service()


# --- HTTP --------------------------------------------------------------------------------------------------------


class Api:
    """One connection to an API, with a token."""

    def __init__(self, port, token=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.token = token

    def request(self, method, path, body=None, headers=()):
        headers = {"Content-Type": "application/json", **dict(headers)}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self.connection.getresponse()
        text = response.read()
        try:
            return response.status, json.loads(text or "{}")
        except ValueError:
            return response.status, {"code": text[:200].decode(errors="replace")}

    def get(self, path):
        return self.expect("GET", path)

    def expect(self, method, path, body=None, headers=()):
        status, answer = self.request(method, path, body, headers)
        if status not in (200, 201):
            raise Refused(f"{method} {path} is {status}: {json.dumps(answer)[:300]}")
        return answer


# --- load --------------------------------------------------------------------------------------------------------


@dataclass
class Write:
    """A write through the API. `received` is None until it is acknowledged."""

    value: tuple
    sent: float
    received: float | None = None


@dataclass
class Fan:
    number: int
    user: int
    token: str
    chat_token: str


@dataclass
class Load:
    """Fans who write concurrently, each on one connection and one write after the other."""

    site: Site
    fans: list
    key: str
    events: dict
    question: int
    rooms: dict
    # Writes of each kind by sequence, such as the predictions of one user for one match, in the order in which they
    # were sent. A stored sequence must be a beginning of it.
    writes: dict = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    faults: list = field(default_factory=list)
    repeated: int = 0
    # Number of the first write of each user.
    first: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    KINDS = ("predictions", "answers", "deductions", "results", "messages", "rooms")

    @classmethod
    def prepare(cls, site, fans):
        """Imports matches, logs users in, and lets them predict the matches that get results during the load."""
        names = [*(f"played{n}" for n in range(12)), *(f"open{n}" for n in range(10)), "after0", "after1"]
        document = {
            "sport": {"slug": "football", "name": "Football"}, "tournament": {"slug": "cup", "name": "Cup"},
            "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
            "matches": [{"key": name, "home": "rovers", "away": "city", "start_time": "2090-05-01T15:00:00Z", "venue": "Park",
                         "status": "scheduled", "home_score": None, "away_score": None} for name in names],
            "questions": [{"key": "corners", "text": "How many corners?", "kind": "number", "points": 50,
                           "locks_at": "2090-05-01T15:00:00Z"}],
        }
        site.matchday("fixtures", "import", "-", text=json.dumps(document))
        ids = [int(row[0]) for row in site.sql("matchday", "select id from events order by id")]
        rooms = site.sql("matchday", "select event_id, matrix_id from rooms where opened_at is not null and stand = 1")
        key = json.loads(site.matchday("keys", "create", "feed", "--scope", "catalogue:write", "--json").stdout)["key"]
        load = cls(site, [], key, dict(zip(names, ids, strict=True)),
                   int(site.value("matchday", "select id from questions")), {int(event): room for event, room in rooms})
        load.fans = [load.log_in(number) for number in range(fans)]
        for fan in load.fans:
            api = Api(site.public_port, fan.token)
            for number in range(12):
                load.predict(api, fan, load.events[f"played{number}"], fan.number + number)
            # Joining takes the homeserver longer than anything else here.
            for number in range(3):
                path = f"/api/auth/chat-rooms/{urllib.parse.quote(load.rooms[load.events[f'open{number}']])}/join"
                # 409: a repeated request whose first attempt has joined the room.
                wait_until("a fan joins a room", 60, lambda: api.request("POST", path)[0] in (200, 201, 409), 0.3)
        load.check()
        return load

    def log_in(self, number):
        api, phone = Api(self.site.public_port), f"+1555019{number:04}"
        api.expect("POST", "/api/code/request", {"phone": phone})
        code = api.get(f"/api/logs/sms?phone={urllib.parse.quote(phone)}")["data"][0]["code"]
        data = api.expect("POST", "/api/code/verify", {"phone": phone, "code": code})["data"]
        if not data["matrix_credentials"]:
            raise Failed(f"{phone} has no chat credentials")
        return Fan(number, data["user"]["id"], data["token"], data["matrix_credentials"]["access_token"])

    # Each of these sends one write and notes it.

    def predict(self, api, fan, event, number):
        home, away, confidence = number % 4, number % 3, number % 101
        pick = "home" if home > away else "away" if home < away else "draw"
        body = {"event_id": event, "prediction": pick, "confidence": confidence, "score_prediction": {"home": home, "away": away}}
        return self.write(api, "predictions", (fan.user, event), (home, away, confidence), "POST", "/api/auth/predictions", body,
                          {"Idempotency-Key": f"p{fan.user}-{event}-{number}"})

    def answer(self, api, fan, number):
        path = f"/api/auth/questions/{self.question}/answer"
        return self.write(api, "answers", (fan.user,), (number,), "PUT", path, {"answer": number})

    def deduct(self, api, fan, number):
        reference, amount = f"order-{number}", 1 + number % 9
        body = {"amount": amount, "reason": "purchase", "reference_id": reference}
        return self.write(api, "deductions", (fan.user,), (reference, amount), "POST", "/api/auth/coins/deduct", body,
                          {"Idempotency-Key": f"{fan.user}-{number}"})

    def set_result(self, api, event, number):
        home, away = number % 5, number // 5 % 5
        path = f"/api/server/v1/events/{event}/result"
        return self.write(api, "results", (event,), (home, away), "PUT", path,
                          {"status": "finished", "home_score": home, "away_score": away})

    def post_message(self, api, fan, number):
        room = self.rooms[self.events[f"open{number % 3}"]]
        path = f"/api/auth/chat-rooms/{urllib.parse.quote(room)}/messages"
        body = f"{fan.user} {number}"
        return self.write(api, "messages", (fan.user,), (body,), "POST", path, {"body": body},
                          {"Idempotency-Key": f"m{fan.user}-{number}"})

    def create_room(self, api, fan, number):
        name = f"Room {fan.user} {number}"
        return self.write(api, "rooms", (fan.user,), (name,), "POST", "/api/auth/chat-room", {"name": name},
                          {"Idempotency-Key": f"r{fan.user}-{number}"})

    def write(self, api, kind, sequence, value, method, path, body, headers=()):
        """Sends a write; returns whether to continue."""
        one = Write(value, time.time())
        self.writes[kind][sequence].append(one)
        while True:
            try:
                status, answer = api.request(method, path, body, headers)
            except (OSError, http.client.HTTPException):
                # The site has died. Whether this write was stored is unknown.
                return False
            # A client repeats a request until the service has time for it. All of these can be repeated.
            if status != 503:
                break
            self.repeated += 1
            if self.stopping.wait(0.2):
                return False
        if status not in (200, 201):
            self.faults.append(f"{method} {path} is {status}: {json.dumps(answer)[:300]}")
            return False
        one.received = time.time()
        return True

    # --- running ---

    def start(self):
        self.threads = [threading.Thread(target=self.fan_writes, args=(fan,), daemon=True) for fan in self.fans]
        self.threads += [threading.Thread(target=self.results_arrive, daemon=True), threading.Thread(target=self.rooms_open, daemon=True)]
        for thread in self.threads:
            thread.start()

    def fan_writes(self, fan):
        api = Api(self.site.public_port, fan.token)
        matches = [self.events[f"open{number}"] for number in range(10)]
        for number in itertools.count(self.first):
            steps = [lambda: self.predict(api, fan, matches[number % 10], number), lambda: self.deduct(api, fan, number),
                     lambda: self.answer(api, fan, number)]
            if number % 20 == fan.number % 20:
                steps.append(lambda: self.post_message(api, fan, number))
            for step in steps:
                if self.stopping.is_set() or not step():
                    return
            time.sleep(0.03)

    def results_arrive(self):
        """A result or a correction every half second, so that workers always have something to settle and to pay."""
        api = Api(self.site.public_port, self.key)
        for number in itertools.count(self.first):
            # Another result than before, since the same one would change nothing.
            if not self.set_result(api, self.events[f"played{number % 12}"], number // 12 * 7 + number % 12):
                return
            if self.stopping.wait(0.5):
                return

    def rooms_open(self):
        fan = self.fans[0]
        api = Api(self.site.public_port, fan.token)
        for number in itertools.count(self.first):
            if not self.create_room(api, fan, number) or self.stopping.wait(4):
                return

    def join(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        self.check()

    def check(self):
        """Fails if a write was refused: before the rehearsal breaks something, none may be."""
        if self.faults:
            raise Failed(f"a write was refused: {self.faults[0]}")
        return True

    def continue_at(self, site, first):
        """Lets the same users continue at another site, from what is stored there."""
        self.site, self.first = site, first
        self.writes.clear()
        self.stopping.clear()
        for kind, sequences in self.stored(site).items():
            for sequence, values in sequences.items():
                self.writes[kind][sequence] = [Write(value, 0, 0) for value in values]

    def durations(self, *kinds):
        """Durations of acknowledged writes in milliseconds, sorted."""
        found = [one.received - one.sent for kind in kinds for writes in self.writes[kind].values() for one in writes if one.received]
        return sorted(duration * 1000 for duration in found)

    def all_writes(self):
        return [one for sequences in list(self.writes.values()) for writes in list(sequences.values()) for one in list(writes)]

    def acknowledged(self):
        return sum(one.received is not None for one in self.all_writes())

    def last_acknowledged(self):
        return max(one.received for one in self.all_writes() if one.received)

    # --- comparing ---

    def stored(self, site):
        """All writes in the databases of a site, by kind and sequence, in the order in which they were made."""
        found = {kind: defaultdict(list) for kind in self.KINDS}

        def read(kind, database, statement, sequence, value):
            for row in site.sql(database, statement):
                found[kind][sequence(row)].append(value(row))

        read("predictions", "matchday", """
            select user_id, event_id, home_goals, away_goals, confidence from (
                select user_id, event_id, revision, home_goals, away_goals, confidence from prediction_revisions
                union all select user_id, event_id, revision, home_goals, away_goals, confidence from predictions) r
            order by user_id, event_id, revision""",
             lambda row: (int(row[0]), int(row[1])), lambda row: tuple(map(int, row[2:])))
        read("answers", "matchday", """
            select user_id, value from (select user_id, revision, value from answer_revisions
                union all select user_id, revision, value from answers) r order by user_id, revision""",
             lambda row: (int(row[0]),), lambda row: (int(row[1]),))
        # A repeated answer may be a second revision.
        for sequence, values in found["answers"].items():
            found["answers"][sequence] = [value for value, _ in itertools.groupby(values)]
        read("deductions", "matchday", """
            select user_id, reference, -amount from coin_transactions where kind = 'deduction' order by user_id, number""",
             lambda row: (int(row[0]),), lambda row: (row[1], int(row[2])))
        read("results", "matchday", "select event_id, home_score, away_score from event_results order by event_id, revision",
             lambda row: (int(row[0]),), lambda row: (int(row[1]), int(row[2])))
        read("rooms", "matchday", """
            select creator_id, name from rooms where stand is null and opened_at is not null order by id""",
             lambda row: (int(row[0]),), lambda row: (row[1],))
        # The homeserver's database. The text of a message starts with the id of its sender.
        read("messages", "synapse", """
            select json::jsonb -> 'content' ->> 'body' from events join event_json using (event_id)
            where type = 'm.room.message' and sender not like '@matchday:%' order by stream_ordering""",
             lambda row: (int(row[0].split()[0]),), lambda row: (row[0],))
        return found

    def compare(self, site, moment=None):
        """Compares the stored writes with the sent ones.

        With a moment, every write acknowledged before it must be stored, and none that was sent after it. Client and
        database share one clock. A write acknowledged before the moment is in the write-ahead log before every commit
        that is later than the moment, so recovery reaches it first.
        """
        stored, outcome = self.stored(site), Outcome()
        for kind in self.KINDS:
            count = outcome.kinds[kind]
            for sequence in {*stored[kind], *self.writes[kind]}:
                sent, kept = self.writes[kind][sequence], stored[kind][sequence]
                if kept != [one.value for one in sent[:len(kept)]]:
                    outcome.faults.append(f"{kind} of {sequence} differ from what was sent: …{kept[-3:]}")
                    continue
                for position, one in enumerate(sent):
                    is_stored = position < len(kept)
                    count.acknowledged += one.received is not None
                    count.stored += is_stored
                    if one.received is not None and not is_stored:
                        count.lost.append(one)
                    if moment is None:
                        continue
                    if one.received is not None and one.received < moment:
                        count.before += 1
                        if not is_stored:
                            outcome.faults.append(f"{kind} of {sequence}: {one.value} was acknowledged before, and is missing")
                    elif one.sent > moment:
                        count.after += 1
                        if is_stored:
                            outcome.faults.append(f"{kind} of {sequence}: {one.value} was sent after, and is there")
                    else:
                        count.around += 1
        return outcome


@dataclass
class Count:
    acknowledged: int = 0
    stored: int = 0
    # Relative to the moment: acknowledged before it, sent after it, or in progress.
    before: int = 0
    after: int = 0
    around: int = 0
    lost: list = field(default_factory=list)


@dataclass
class Outcome:
    kinds: dict = field(default_factory=lambda: defaultdict(Count))
    faults: list = field(default_factory=list)

    def total(self, name):
        values = [getattr(count, name) for count in self.kinds.values()]
        return sum(len(value) if isinstance(value, list) else value for value in values)

    def lost(self):
        return [one for count in self.kinds.values() for one in count.lost]


# --- checks ------------------------------------------------------------------------------------------------------


def published_seals(site):
    """All seals, as every reader gets them."""
    api, found = Api(site.public_port), []
    while True:
        page = api.get(f"/api/seals?per_page=1000&after={len(found)}")
        found += page["data"]
        if not page["meta"]["more"]:
            return found


class Checks:
    """Checks of a site that was recovered. Each returns the violations that it finds."""

    def __init__(self, site, load):
        self.site, self.load = site, load

    def command(self, words):
        done = self.site.matchday(*words, check=False)
        return [] if done.returncode == 0 else [f"matchday {' '.join(words)}: {(done.stdout + done.stderr).strip()[-300:]}"]

    def rooms(self):
        """Every open room of the service exists on the homeserver, under its alias."""
        faults, api = [], Api(self.site.synapse_port)
        rows = self.site.sql("matchday", "select alias, matrix_id from rooms where opened_at is not null order by id")
        for alias, room in rows:
            full = alias if alias.startswith("#") else f"#{alias}:{SERVER_NAME}"
            status, answer = api.request("GET", f"/_matrix/client/v3/directory/room/{urllib.parse.quote(full)}")
            if status != 200 or answer["room_id"] != room:
                faults.append(f"{full} is {answer.get('room_id') or status} on the homeserver, not {room}")
        self.room_count = len(rows)
        return faults

    def memberships(self):
        """Members of the service's rooms are joined on the homeserver. The comparison in the background repairs that."""
        self.site.matchday("memberships", "compare")
        since = time.time()

        def compared():
            line = re.search(r"all rooms compared since: (\S+)", self.site.matchday("memberships", "status").stdout)[1]
            return line != "never" and time.mktime(time.strptime(line, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone >= since - 1

        wait_until("all rooms are compared with the homeserver", 180, compared, 0.5)
        ours = {tuple(row) for row in self.site.sql("matchday", """
            select r.matrix_id, u.username from room_members m join rooms r on r.id = m.room_id
            join users u on u.user_id = m.user_id where m.membership = 'join' and r.opened_at is not null""")}
        rooms = {tuple(row)[0] for row in self.site.sql("matchday", "select matrix_id from rooms where opened_at is not null")}
        theirs = {(room, user.removeprefix("@").split(":")[0]) for room, user in self.site.sql("synapse", """
            select room_id, state_key from current_state_events where type = 'm.room.member' and membership = 'join'""")}
        theirs = {(room, user) for room, user in theirs if room in rooms and user != "matchday"}
        self.member_count = len(ours)
        return [f"{user} is joined to {room} on one side only" for room, user in sorted(ours ^ theirs)]

    def scores_settled(self):
        """Waits until all results are in all scores and paid; the workers find lost jobs after two minutes."""
        wait_until("all results are in all scores", 300, lambda: "every result is in all scores" in
                   self.site.matchday("scores", "status").stdout, 0.5)

    def leaderboards(self):
        """The leaderboard in Redis, which was empty, has the scores of the database."""
        expected = [(int(points), int(user)) for user, points in
                    self.site.sql("matchday", "select user_id, points from user_scores where scope = 'all' order by points desc")]
        api = Api(self.site.public_port, self.load.fans[0].token)

        def shown():
            status, answer = api.request("GET", "/api/auth/leaderboards?per_page=100")
            return status == 200 and [(row["points"], row["user"]["id"]) for row in answer["data"]["top"]]

        found = wait_until("the leaderboard is available", 60, shown)
        return [] if sorted(found) == sorted(expected) and expected else [f"leaderboard: {found[:3]}…, database: {expected[:3]}…"]

    def messages(self):
        """A fan with a session from before posts a message, and another one reads it from the homeserver."""
        first, second = self.load.fans[:2]
        room = self.load.rooms[self.load.events["open0"]]
        quoted, api = urllib.parse.quote(room), Api(self.site.public_port, first.token)
        posted = []

        def post():
            body = {"body": f"{first.user} after the recovery"}
            status, answer = api.request("POST", f"/api/auth/chat-rooms/{quoted}/messages", body)
            if status == 201:
                posted.append(answer["data"]["event_id"])
            return posted

        wait_until("a message can be posted", 60, post, 0.2)
        path = f"/_matrix/client/v3/rooms/{quoted}/event/{urllib.parse.quote(posted[0])}"
        read = Api(self.site.synapse_port, second.chat_token).get(path)
        return [] if read["content"]["body"].endswith("after the recovery") else [f"the message reads {read}"]

    def settle(self, name):
        """A match is predicted, ends, and is in the scores and wallets of all fans: outbox, NATS and workers continue."""
        event = self.load.events[name]
        facts = self.facts()
        for fan in self.load.fans:
            body = {"event_id": event, "prediction": "home", "confidence": 50, "score_prediction": {"home": 2, "away": 1}}
            Api(self.site.public_port, fan.token).expect("POST", "/api/auth/predictions", body)
        Api(self.site.public_port, self.load.key).expect(
            "PUT", f"/api/server/v1/events/{event}/result", {"status": "finished", "home_score": 2, "away_score": 1})
        self.scores_settled()
        paid = f"select count(*) from coin_transactions where kind = 'points' and event_id = {event}"
        wait_until("coins are paid", 60, lambda: int(self.site.value("matchday", paid)) >= len(self.load.fans))
        wait_until("the outbox is empty", 60, lambda: self.site.value("matchday", "select count(*) from outbox") == "0")
        wait_until("NATS has the facts", 60, lambda: self.facts() > facts)
        count = int(self.site.value("matchday", paid))
        return [] if count == len(self.load.fans) else [f"{count} payouts to {len(self.load.fans)} fans"]

    def stream(self, name, state):
        """A number of a stream of the service, such as `messages`."""
        streams = Api(self.site.nats_http_port).get("/jsz?accounts=true&streams=true")
        details = [one for account in streams.get("account_details", []) for one in account.get("stream_detail", [])]
        return next((one["state"][state] for one in details if one["name"] == f"matchday_{name}"), 0)

    def facts(self):
        return self.stream("fact", "last_seq")

    def dead_letters(self):
        """No work was given up."""
        count = self.stream("dead", "messages")
        return [f"{count} dead letters"] if count else []

    def seals(self):
        """Every match that closed is sealed, the chain is whole, and the table follows from the sealed predictions."""
        open_ones = "select count(*) from events e where status = 'finished' and not exists (select from seals s where s.event_id = e.id)"
        wait_until("all matches are sealed", 60, lambda: self.site.value("matchday", open_ones) == "0")
        with tempfile.TemporaryDirectory() as folder:
            chain, bundle = pathlib.Path(folder, "chain.json"), pathlib.Path(folder, "bundle.jsonl")
            chain.write_text(json.dumps(published_seals(self.site)), encoding="utf-8")
            self.site.matchday("seals", "bundle", "cup", "--out", bundle)
            done = run([VERIFY, "bundle", bundle, "--chain", chain], check=False)
        return [] if done.returncode == 0 else [f"seals: {(done.stdout + done.stderr).strip()[-300:]}"]

    def double_payments(self):
        """The ledger paid each user for each match as often as the payouts say, and what the latest result is worth."""
        rows = self.site.sql("matchday", """
            with last as (select distinct on (user_id, event_id) user_id, event_id, due, had from coin_payouts
                          order by user_id, event_id, revision desc),
                 moved as (select user_id, event_id, sum(amount) as paid from coin_transactions where kind = 'points'
                           group by user_id, event_id)
            select user_id, event_id, due, coalesce(paid, 0) from last full join moved using (user_id, event_id)
            where (due, had) is distinct from (coalesce(paid, 0), coalesce(paid, 0))""")
        return [f"user {user}, match {event}: due {due}, paid {paid}" for user, event, due, paid in rows]

    def run(self, clock, match):
        """Runs all checks, settles a match, and checks again; returns the violations."""
        faults = []
        with clock.step("all results settled"):
            self.scores_settled()
        for words in CHECKS.values():
            with clock.step(f"matchday {' '.join(words)}"):
                faults += self.command(words)
        with clock.step("other checks"):
            faults += [*self.rooms(), *self.memberships(), *self.leaderboards(), *self.seals(), *self.double_payments(), *self.dead_letters()]
        say(f"{self.room_count} rooms with {self.member_count} members compared with the homeserver")
        with clock.step("another match settled"):
            faults += self.settle(match)
        for words in CHECKS.values():
            faults += self.command(words)
        return [*faults, *self.seals(), *self.double_payments(), *self.dead_letters()]

    def self_test(self, compare):
        """Breaks one thing at a time, and checks that it is noticed; then repairs it."""
        fan = self.load.fans[0].user
        cases = {
            "a wallet with one coin too many": (
                "matchday", f"update wallets set balance = balance + 1 where user_id = {fan}",
                f"update wallets set balance = balance - 1 where user_id = {fan}", lambda: self.command(CHECKS["coins"])),
            "a score with one point too many": (
                "matchday", f"update user_scores set points = points + 1 where user_id = {fan} and scope = 'all'",
                f"update user_scores set points = points - 1 where user_id = {fan} and scope = 'all'",
                lambda: self.command(CHECKS["scores"])),
            "a prediction that is lost": (
                "matchday", "create table kept as select * from predictions where user_id = {0} and event_id = {1};"
                "delete from predictions where user_id = {0} and event_id = {1}".format(fan, self.load.events["played0"]),
                "insert into predictions overriding system value select * from kept; drop table kept", compare),
            "a deduction that was never sent": (
                "matchday", "insert into coin_transactions (user_id, number, transaction_id, kind, amount, balance, reason, "
                f"reference, created_at) values ({fan}, 1000000, gen_random_uuid(), 'deduction', -1, 0, 'purchase', 'none', now())",
                f"delete from coin_transactions where user_id = {fan} and number = 1000000", compare),
            "a sealed prediction that changed": (
                "matchday", "update predictions set confidence = (confidence + 1) % 101 where user_id = {} and event_id = {}".format(
                    fan, self.load.events["after0"]),
                "update predictions set confidence = (confidence + 100) % 101 where user_id = {} and event_id = {}".format(
                    fan, self.load.events["after0"]), self.seals),
            "an alias that points to another room": (
                "synapse", "update room_aliases set room_id = '!other:' || room_id where room_alias = (select min(room_alias) "
                "from room_aliases)", "update room_aliases set room_id = substring(room_id from 8) where room_id like '!other:%'",
                self.rooms),
        }
        missed = []
        for name, (database, damage, repair, check) in cases.items():
            before = check()
            self.site.sql(database, damage)
            try:
                if check() == before:
                    missed.append(f"{name} was not noticed")
            finally:
                self.site.sql(database, repair)
            if check() != before:
                missed.append(f"{name} was not repaired")
        self.case_count = len(cases)
        return missed


# --- report ------------------------------------------------------------------------------------------------------


class Clock:
    """Durations of the steps, in order."""

    def __init__(self):
        self.steps = []

    @contextlib.contextmanager
    def step(self, name):
        began = time.monotonic()
        yield
        self.add(name, time.monotonic() - began)

    def add(self, name, seconds):
        self.steps.append((name, seconds))
        say(f"{name}: {seconds:.1f} s")

    def __getitem__(self, name):
        return next(seconds for step, seconds in self.steps if step == name)


def table(head, rows):
    rows = [tuple(str(cell) for cell in row) for row in [head, *rows]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(zip(row, widths))]
        say("  ".join(cells).rstrip())
        if number == 0:
            say("  ".join("-" * width for width in widths))


def expect_none(faults):
    for fault in faults:
        say(f"VIOLATION: {fault}")
    if faults:
        raise Failed(f"{len(faults)} violations")


def held(what, text):
    """Prints the result, and appends it to the file from which docs/reliability.md is generated."""
    say(f"held: {what}: {text}")
    if proof := os.environ.get("MATCHDAY_PROOF"):
        with open(proof, "a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, "held": text}) + "\n")


def percentile(sorted_values, share):
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


async def link(port, target, delay):
    """Forwards connections to another port, and delays all bytes: a line between two sites."""
    async def forward(reader, writer):
        loop, waiting = asyncio.get_running_loop(), asyncio.Queue()

        async def send():
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(0, due - loop.time()))
                writer.write(data)
                await writer.drain()
                if not data:
                    return writer.close()

        sending = asyncio.create_task(send())
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                waiting.put_nowait((loop.time() + delay, data))
        waiting.put_nowait((loop.time() + delay, b""))
        with contextlib.suppress(OSError):
            await sending

    async def accept(reader, writer):
        with contextlib.suppress(OSError):
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", target)
            await asyncio.gather(forward(reader, other_writer), forward(other_reader, writer))

    async with await asyncio.start_server(accept, "127.0.0.1", port) as server:
        await server.serve_forever()


def rehearse(main, keep):
    """Runs a rehearsal in a new folder, and removes everything afterwards."""
    work = pathlib.Path(tempfile.mkdtemp(prefix="matchday-rehearsal-", dir="/var/tmp"))
    work.chmod(0o755)
    sites, failed = [], False

    def end(*_):
        # A second signal must not interrupt the cleaning below.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(1)

    signal.signal(signal.SIGTERM, end)
    try:
        main(work, sites)
    except Failed as error:
        failed = True
        print(f"FAILED: {error}", file=sys.stderr, flush=True)
    finally:
        for site in sites:
            site.kill()
        if keep:
            say(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    sys.exit(failed)


if __name__ == "__main__":
    # rehearsal.py PORT TARGET MILLISECONDS: a line between two sites, as a process that dies with a site.
    asyncio.run(link(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1000))
