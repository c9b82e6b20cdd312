"""Checks files and a running service, for deploy/check. Requires Python 3.11 or newer with PyYAML.

Each function is one command of this script: `check.py names` and so on. It prints a summary. If something is wrong, it lists
every fault and exits with 1.
"""

import glob
import html
import json
import os
import re
import string
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.parse
import urllib.request

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DASHBOARD = f"{ROOT}/deploy/grafana/matchday.json"
FAULTS = []


def fault(text):
    FAULTS.append(text)


def read(path):
    with open(f"{ROOT}/{path}" if not path.startswith("/") else path, encoding="utf-8") as file:
        return file.read()


def rules(path):
    return [rule for group in yaml.safe_load(read(path))["groups"] for rule in group["rules"]]


def alerts():
    return [rule for rule in rules("deploy/prometheus/alerts.yaml") if "alert" in rule]


def recorded():
    return {rule["record"]: rule["expr"] for rule in rules("deploy/prometheus/recording.yaml")}


def dashboard_panels():
    return [panel for panel in json.loads(read(DASHBOARD))["panels"] if panel["type"] != "row"]


def expressions():
    """Every expression with its location."""
    for rule in alerts():
        yield f"alert {rule['alert']}", rule["expr"]
    for name, expression in recorded().items():
        yield f"record {name}", expression
    for panel in dashboard_panels():
        for target in panel["targets"]:
            # Replace Grafana's variables.
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
            if "$" in expression:
                fault(f"dashboard, {panel['title']}: unknown variable: {expression}")
            yield f"dashboard, {panel['title']}", expression


def names_in(expression):
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", expression)
    return set(re.findall(r"\b(?:matchday[a-z0-9_:]*|probe_[a-z_]+|process_[a-z_]+|up|ALERTS)\b(?!\s*\()", bare))


def exported():
    """Names of the metrics in the code, and the series names that Prometheus sees."""
    names = set()
    for path in glob.glob(f"{ROOT}/crates/*/src/**/*.rs", recursive=True):
        text = re.sub(r"metrics::describe_\w+!\([^)]*\)", "", read(path))
        names |= set(re.findall(r'(?:metrics::(?:counter|gauge|histogram)!\(\s*|BATCHES: &\'static str = |BATCHES: &str = )"(matchday_\w+)"', text))
    seen = set()
    for name in names:
        seen.add(name)
        if name.endswith("_seconds") and not name.endswith(("_lag_seconds", "_oldest_seconds", "_timestamp_seconds")):
            seen |= {f"{name}_{suffix}" for suffix in ("bucket", "sum", "count")}
    return names, seen


def names():
    """Alerts and dashboard use only exported metrics, and every exported metric is used."""
    base, seen = exported()
    # Metrics of other exporters, and process metrics from a library.
    others = {"up", "ALERTS", "process_resident_memory_bytes", "process_open_fds", "process_max_fds", "process_cpu_seconds_total", "probe_success", "probe_duration_seconds", "probe_ssl_earliest_cert_expiry"} | set(recorded())
    used = set()
    for where, expression in expressions():
        for name in names_in(expression):
            used.add(re.sub(r"_(bucket|sum|count)$", "", name))
            if name not in seen | others:
                fault(f"{where}: the service does not export {name}")
    for name in sorted(base - used):
        fault(f"{name} is exported, but neither on the dashboard nor in an alert")
    print(f"{len(base)} metrics are exported; {len(list(expressions()))} expressions use all of them and no others")


def runbook():
    """Every alert has the required annotations, one section in the runbook, and a test in which it is silent and then fires."""
    known = [rule["alert"] for rule in alerts()]
    headings = re.findall(r"^### (Matchday\w+)$", read("docs/runbook.md"), re.M)
    for name in sorted(set(known) ^ set(headings)):
        fault(f"{name} is only {'an alert' if name in known else 'a section of the runbook'}")
    for name in {name for name in known + headings if known.count(name) > 1 or headings.count(name) > 1}:
        fault(f"{name} occurs twice")
    for rule in alerts():
        name, notes = rule["alert"], rule.get("annotations", {})
        if rule.get("labels", {}).get("severity") not in ("critical", "warning"):
            fault(f"{name} has no severity")
        for key in ("summary", "description"):
            if not notes.get(key):
                fault(f"{name} has no {key}")
        if notes.get("runbook_url") != f"docs/runbook.md#{name.lower()}":
            fault(f"{name}: runbook_url does not name its section of the runbook")
    tests = yaml.safe_load(read("deploy/prometheus/tests.yaml"))["tests"]
    fired, silent = set(), set()
    for test in tests:
        firing = [{re.search(r'alertname="(\w+)"', sample["labels"])[1] for sample in moment.get("exp_samples") or []}
                  for moment in test["promql_expr_test"]]
        for name in set().union(*firing):
            fired.add(name)
            if any(name not in moment for moment in firing):
                silent.add(name)
    for name in known:
        if name not in fired:
            fault(f"{name} fires in no test")
        elif name not in silent:
            fault(f"{name} has no test in which it is silent and then fires")
    print(f"{len(known)} alerts, each with a section in the runbook, and with a test in which it is silent first and then fires")


def commands(binary):
    """Every command named in the documents exists in the binary."""
    named = set()
    for path in ("docs/runbook.md", "docs/operating.md", "docs/capacity.md", "docs/commands.md", "deploy/README.md"):
        text = re.sub(r"```sql.*?```", "", read(path), flags=re.S)
        for line in re.findall(r"(?:^|[`\s(])matchday ((?:[a-z]+(?: |$|`))+)", text, re.M):
            # In `docker compose exec matchday matchday …` the first word is the name of the container.
            named.add(tuple(line.replace("`", "").removeprefix("matchday ").split()))
    words = {}
    def help_of(parts):
        if parts not in words:
            helped = subprocess.run([binary, *parts, "--help"], capture_output=True, text=True, check=False)
            words[parts] = helped.returncode == 0 and helped.stdout or None
        return words[parts]
    checked = set()
    for parts in sorted(named):
        if not help_of(parts[:1]):
            fault(f"the documents name `matchday {parts[0]}`, which does not exist")
            continue
        checked.add(parts[:1])
        # A second word may be a subcommand or a value.
        if "Commands:" in help_of(parts[:1]) and len(parts) > 1:
            if help_of(parts[:2]) is None:
                fault(f"the documents name `matchday {' '.join(parts[:2])}`, which does not exist")
            checked.add(parts[:2])
    print(f"{len(checked)} commands are named in the documents, and exist in the binary")


def dashboard():
    """The dashboard is consistent: unique ids, no overlapping panels, one data source."""
    content = json.loads(read(DASHBOARD))
    places, ids = set(), set()
    for panel in content["panels"]:
        if panel["id"] in ids:
            fault(f"dashboard: the id {panel['id']} occurs twice")
        ids.add(panel["id"])
        at = panel["gridPos"]
        if at["x"] + at["w"] > 24:
            fault(f"dashboard, {panel['title']}: wider than the dashboard")
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        if places & cells:
            fault(f"dashboard, {panel['title']}: overlaps another panel")
        places |= cells
        if panel["type"] != "row" and panel["datasource"] != {"type": "prometheus", "uid": "${datasource}"}:
            fault(f"dashboard, {panel['title']}: uses another data source")
    print(f"{len(dashboard_panels())} panels without overlaps")


def interpolate(part, values, where):
    """Interpolates variables as compose does: after the file is parsed."""
    if isinstance(part, dict):
        return {name: interpolate(inner, values, f"{where}, {name}") for name, inner in part.items()}
    if isinstance(part, list):
        return [interpolate(inner, values, where) for inner in part]
    if not isinstance(part, str):
        return part

    def value(match):
        whole, name, kind, other = match.group(0), match.group("name"), match.group("kind"), match.group("other")
        if whole == "$$":
            return "$"
        if values.get(name):
            return values[name]
        if kind == ":-":
            return other
        if kind == ":?":
            fault(f"{where}: {name} is not set: {other}")
            return ""
        if name not in values:
            fault(f"{where}: {name} is not in .env")
        return ""
    return re.sub(r"\$\$|\$\{(?P<name>[A-Z_0-9]+)(?:(?P<kind>:-|:\?)(?P<other>[^}]*))?\}", value, part)


def compose(into):
    """Writes the settings of the services to a directory, as compose would."""
    values = dict(line.split("=", 1) for line in subprocess.run([f"{ROOT}/deploy/make-env"], capture_output=True, text=True,
                  check=True).stdout.splitlines() if line and not line.startswith("#"))
    raw = yaml.safe_load(read("deploy/compose.yaml"))
    interpolate(raw, values, "compose.yaml")
    left_open = len({text.split(": ")[1] for text in FAULTS})
    if left_open < 5:
        fault("compose.yaml would start without addresses, countries and providers")
        return
    FAULTS.clear()
    secrets = [name for name, value in values.items() if re.fullmatch(r"(?:1:)?[0-9a-f]{64}", value)]
    values |= {"PUBLIC_URL": "https://api.example.org", "CHAT_URL": "https://chat.example.org", "SERVER_NAME": "example.org",
               "SMS_PROVIDERS": "twilio", "SMS_COUNTRIES": "DE,GB:2000", "TWILIO_ACCOUNT_SID": "AC0", "TWILIO_AUTH_TOKEN": "x",
               "TWILIO_FROM": "+12015550100"}
    whole = interpolate(raw, values, "compose.yaml")
    services = whole["services"]
    # As `start` of compose/synapse and the command of Redis do.
    rendered = {os.path.basename(path): string.Template(read(path)).substitute(services["synapse"]["environment"])
                for path in glob.glob(f"{ROOT}/deploy/compose/synapse/*.yaml")}
    redis = re.search(r"<<END\n(.*\n)END\n", services["redis"]["command"][0], re.S)[1]
    rendered["redis.conf"] = string.Template(redis).substitute(services["redis"]["environment"])
    rendered["nats.conf"] = read("deploy/compose/nats.conf")
    for name, text in rendered.items():
        with open(f"{into}/{name}", "w", encoding="utf-8") as file:
            file.write(text.replace("/run/synapse", into).replace("/data", f"{into}/data"))
    for service, name in (("postgres", "postgres"), ("matchday-1", "matchday"), ("migrate", "migrate")):
        with open(f"{into}/{name}.env", "w", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in services[service]["environment"].items())
    # Every client that Docker relays appears as the gateway, which may be trusted only while all published ports are on
    # loopback.
    trusted = services["matchday-1"]["environment"]["MATCHDAY_HTTP__TRUSTED_PROXIES"]
    gateway = whole["networks"]["outside"]["ipam"]["config"][0]["gateway"]
    if trusted != f"{services['balancer']['networks']['outside']['ipv4_address']}/32,{gateway}/32":
        fault(f"compose.yaml: the service trusts {trusted}, not only the balancer and Docker's gateway")
    for name, service in raw["services"].items():
        if not all(port.startswith("127.0.0.1:") for port in service.get("ports", [])):
            fault(f"compose.yaml: {name} is not published on loopback only: {service['ports']}")
    balancer(services)
    users_of_nats = ("nats", "matchday-1", "matchday-2", "demo")
    for name, service in whole["services"].items():
        if ("queue" in service["networks"]) != (name in users_of_nats):
            fault(f"compose.yaml: {name} must be in the network of NATS if and only if it uses NATS")
        for port in service.get("ports", []):
            if not port.startswith("127.0.0.1:"):
                fault(f"compose.yaml: {name} is reachable from other machines: {port}")
        # Every process of the machine can read command lines.
        shown = json.dumps([service.get(key) for key in ("command", "entrypoint", "healthcheck")])
        for secret in secrets:
            if values[secret] in shown:
                fault(f"compose.yaml: {name} has {secret} on its command line")
        if service.get("environment", {}).get("MATCHDAY_ENV", "production") != "production" and service.get("profiles") != ["demo"]:
            fault(f"compose.yaml: {name} is not in production mode, and not part of the demo")
        for secret in ("OWNER_PASSWORD", "POSTGRES_PASSWORD"):
            if name not in ("postgres", "migrate", "demo") and values[secret] in json.dumps(service):
                fault(f"compose.yaml: {name} has {secret}")
    print(f"compose.yaml requires {left_open} values from the operator; with them {len(whole['services'])} services and "
          f"{len(rendered)} files with settings are complete, and all ports are on loopback")


def seconds(duration):
    return int(duration.removesuffix("s"))


def balancer(services):
    """The balancer knows the processes, and notices before they close that they are about to."""
    settings = read("deploy/compose/haproxy.cfg")
    processes = {name: service["networks"]["outside"]["ipv4_address"] for name, service in services.items()
                 if service.get("command") == ["serve"]}
    for port in (8080, 9090, 9092):
        listed = dict(re.findall(rf'server (\S+) "(\$\{{SUBNET\}}\.\d+):{port}"', settings))
        if {name: string.Template(address).substitute(services["balancer"]["environment"]) for name, address in listed.items()} != processes:
            fault(f"haproxy.cfg: port {port} is balanced to {listed}, not to {processes}")
    interval, fall = re.search(r"inter (\d+)s fall (\d+)", settings).groups()
    for name in processes:
        notice = seconds(services[name]["environment"]["MATCHDAY_SHUTDOWN__NOTICE"])
        if notice <= int(interval) * int(fall) + 1:
            fault(f"compose.yaml: {name} closes before the balancer notices that it is not ready")
        if seconds(services[name]["stop_grace_period"]) <= notice + 20:
            fault(f"compose.yaml: {name} is killed before it has drained")


def dockerfile():
    """The Dockerfile copies every manifest, and shortens them so that Cargo requires no sources of tests and benchmarks."""
    text = read("deploy/Dockerfile")
    copied = re.findall(r"^COPY (crates/\S+/Cargo\.toml) \1$", text, re.M)
    members = [os.path.relpath(path, ROOT) for path in sorted(glob.glob(f"{ROOT}/crates/*/Cargo.toml"))]
    if sorted(copied) != members:
        fault(f"Dockerfile: copies the manifests {copied}, not {members}")
    kept = re.search(r"^RUN sed -i -E '/(.*)/,\$d' crates/\*/Cargo\.toml", text, re.M)[1]
    for path in members:
        whole = read(path)
        cut = re.search(kept, whole, re.M)
        manifest = tomllib.loads(whole[:cut.start()] if cut else whole)
        for kind in ("test", "bench", "example"):
            if kind in manifest:
                fault(f"Dockerfile: {path} still lists a {kind}, whose file is missing in the layer of dependencies")
        if set(manifest) != set(tomllib.loads(whole)) - {"test", "bench", "example"}:
            fault(f"{path}: tests and benchmarks must be at the end, because the Dockerfile removes everything after them")
    print(f"Dockerfile: the layer of dependencies has all {len(members)} manifests, without tests and benchmarks")


def chart(rendered, into):
    """Checks the rendered chart for consistency, and writes the settings to a file."""
    documents = [document for document in yaml.safe_load_all(read(rendered)) if document]
    by = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    settings = [document["data"]["matchday.toml"] for (kind, _), document in by.items() if kind == "ConfigMap"]
    if len(set(settings)) != 1:
        fault(f"{rendered}: the migration job has other settings than the service")
    with open(into, "w", encoding="utf-8") as file:
        file.write(settings[0])
    pods = {name: document["spec"]["template"] for (kind, name), document in by.items() if kind == "Deployment"}
    for (kind, name), document in by.items():
        if kind == "Service":
            selector = document["spec"]["selector"].items()
            chosen = [pod for pod in pods.values() if selector <= pod["metadata"]["labels"].items()]
            target = document["spec"]["ports"][0]["targetPort"]
            if not chosen:
                fault(f"{rendered}: the service {name} selects no pod")
            for pod in chosen:
                if target not in [port["name"] for port in pod["spec"]["containers"][0]["ports"]]:
                    fault(f"{rendered}: the service {name} targets the port {target}, which a pod does not have")
    for name, pod in pods.items():
        container = pod["spec"]["containers"][0]
        env = {entry["name"]: entry.get("value", "") for entry in container["env"]}
        notice, drain = (int(env[f"MATCHDAY_SHUTDOWN__{key}"][:-1]) for key in ("NOTICE", "DRAIN"))
        ready = container["readinessProbe"]
        if pod["spec"]["terminationGracePeriodSeconds"] <= notice + drain:
            fault(f"{rendered}: {name} is killed before it has drained")
        if notice <= ready["periodSeconds"] * ready["failureThreshold"]:
            fault(f"{rendered}: {name} closes before load balancers notice that it is not ready")
        if container["livenessProbe"]["httpGet"] != {"path": "/healthz", "port": "private"} or \
                ready["httpGet"] != {"path": "/readyz", "port": "private"}:
            fault(f"{rendered}: {name} has wrong probes")
        if any("OWNER" in json.dumps(entry) for entry in container["env"]):
            fault(f"{rendered}: {name} has the role that owns the tables")
    print(f"{os.path.basename(rendered)}: {len(documents)} objects; services select pods, and processes have time to shut down")


def requirements():
    """Every package is pinned with hashes, and every installation requires them."""
    files = sorted(glob.glob(f"{ROOT}/d*/*requirements.txt"))
    count = 0
    for path in files:
        name = os.path.relpath(path, ROOT)
        locked = {}
        for entry in re.split(r"\n(?=\S)", read(path)):
            if match := re.match(r"([\w.-]+)==([^\s;]+)", entry):
                count += 1
                locked[match[1].lower().replace("_", "-")] = match[2]
                if "--hash=sha256:" not in entry:
                    fault(f"{name}: {match[1]} has no hash")
            elif not entry.startswith("#"):
                fault(f"{name}: not pinned: {entry.splitlines()[0]}")
        for wanted, version in re.findall(r"^([\w.-]+)(?:==(\S+))?$", read(path.removesuffix("txt") + "in"), re.M):
            if locked.get(wanted.lower().replace("_", "-")) not in ((version,) if version else locked.values()):
                fault(f"{name} does not match its .in file, which requires {wanted} {version}: run dev/lock-requirements")
    if len(files) < 4:
        fault(f"requirements are missing: {files}")
    for path in subprocess.run(["git", "-C", ROOT, "grep", "-l", "pip install", "--", "dev", "deploy", "clients", ".ci"], capture_output=True,
                               text=True, check=False).stdout.split():
        text = read(path).replace("\\\n", " ")
        for line in re.findall(r".*-m pip install.*", text):
            # The program that generates the files cannot be in them.
            if "--require-hashes" not in line and path not in ("dev/lock-requirements", "deploy/check.py"):
                fault(f"{path} installs without hashes: {line.strip()}")
    print(f"{count} packages in {len(files)} files are pinned with hashes, and all installations require them")


def web(proxy, headers, page):
    """The web app has its security headers. The policy is that of the built page, plus `frame-ancestors`, which only a header can set."""
    sent = dict(line.split(": ", 1) for line in read(headers).lower().splitlines() if ": " in line)
    built = html.unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', read(page))[1])
    wanted = {
        "content-security-policy": f"{built}; frame-ancestors 'none'".lower(), "x-content-type-options": "nosniff",
        "x-frame-options": "deny", "referrer-policy": "same-origin", "strict-transport-security": "max-age=31536000",
    }
    for name, value in wanted.items():
        if sent.get(name) != value:
            fault(f"{proxy}: the web app's {name} is {sent.get(name)!r}, not {value!r}")
    connect = re.search(r"connect-src ([^;]*)", built)[1].split()
    if connect != ["'self'", "https://chat.example.org"]:
        fault(f"the built page may connect to {connect}")
    print(f"{proxy}: the web app has its {len(wanted)} security headers, and may connect to {' and '.join(connect)}")


def fetch(url, token=None, method="GET", body=None, headers=None, timeout=10):
    request = urllib.request.Request(url, method=method, data=None if body is None else json.dumps(body).encode(),
                                     headers={**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def move_and_undo(base):
    """Moves an account to another phone, and undoes the move with the code sent to the old phone."""
    old, new = "+15550109901", "+15550109902"

    def log(phone, notices=False):
        more = "&notices=true" if notices else ""
        return json.loads(fetch(f"{base}/api/logs/sms?phone={urllib.parse.quote(phone)}{more}")[1])["data"]

    def post(path, body, token=None):
        status, answer = fetch(f"{base}{path}", token, "POST", body)
        if status != 200:
            fault(f"{path} responded {status}: {answer.decode()}")
        return json.loads(answer)

    post("/api/code/request", {"phone": old})
    token = post("/api/code/verify", {"phone": old, "code": log(old)[0]["code"]})["data"]["token"]
    post("/api/auth/verify-phone/initiate", {"phone": new}, token)
    post("/api/auth/verify-phone", {"phone": new, "code": log(new)[0]["code"]}, token)
    ends = time.time() + 20
    while not (notices := log(old, notices=True)) and time.time() < ends:
        time.sleep(0.2)
    if not notices:
        return fault("the old phone got no notification of the move within 20 s")
    post("/api/phone/undo-move", {"code": notices[0]["text"].split()[-1]})


def spectate(base, room, token):
    """Opens the chat of a room as a spectator, who stays until this script ends."""
    query = urllib.parse.urlencode({"room_id": room, "chat": "true"})
    request = urllib.request.Request(f"{base}/api/auth/stream?{query}", headers={"Authorization": f"Bearer {token}"})
    stream = urllib.request.urlopen(request, timeout=30)
    for line in stream:
        if b'"type":"ready"' in line:
            return stream


def use(base, *tokens):
    """Uses the service as fans would, so that metrics have values."""
    move_and_undo(base)
    status, body = fetch(f"{base}/api/auth/events?per_page=50", tokens[0])
    listed = json.loads(body)["data"] if status == 200 else []
    matches = [match["id"] for match in listed]
    room = next(match["chat_room_id"] for match in listed if match["chat_room_id"])
    asked = json.loads(fetch(f"{base}/api/auth/questions", tokens[0])[1])["data"]
    numbers = [question["id"] for question in asked if question["kind"] == "number"]
    spectator = spectate(base, room, tokens[0])
    ends, seen = time.time() + 10, 0
    turn = 0
    while time.time() < ends:
        for token in tokens:
            turn += 1
            calls = [
                ("GET", "/api/auth/events?per_page=20", None, {}), ("GET", "/api/auth/leaderboards", None, {}),
                ("GET", "/api/auth/predictions", None, {}), ("GET", "/api/auth/chat-rooms", None, {}),
                ("POST", "/api/auth/coins/deduct", {"amount": 1, "reason": "purchase"}, {"Idempotency-Key": f"key-{turn // 2}"}),
                ("POST", "/api/auth/daily-coins", {}, {}),
                *[("PUT", f"/api/auth/questions/{question}/answer", {"answer": turn}, {}) for question in numbers],
                *[("POST", "/api/auth/predictions", {"event_id": match, "prediction": "home", "confidence": 60}, {}) for match in matches],
            ]
            for method, path, body, headers in calls:
                fetch(base + path, token, method, body, headers)
                seen += 1
        phone = {"phone": f"+1555010{turn % 90 + 10:02}00"}
        fetch(f"{base}/api/code/request", None, "POST", phone)
        status, body = fetch(f"{base}/api/logs/sms?phone={urllib.parse.quote(phone['phone'])}")
        if status == 200 and json.loads(body)["data"]:
            code = json.loads(body)["data"][0]["code"]
            status, body = fetch(f"{base}/api/code/verify", None, "POST", {**phone, "code": code})
            if status == 200:
                # The first message of a fan joins the room of the match.
                path = f"/api/auth/chat-rooms/{urllib.parse.quote(room)}/messages"
                fetch(base + path, json.loads(body)["data"]["token"], "POST", {"body": f"Hello {turn}"})
            fetch(f"{base}/api/code/verify", None, "POST", {**phone, "code": "000000"})
        time.sleep(0.2)
    spectator.close()
    print(f"{seen} requests were made")


# Metrics of failures, and of providers, feeds and endpoints that do not exist here.
MAY_BE_SILENT = re.compile(
    "shed|rate_limit|stream_dropped|stream_unresolved|written_off|leaderboards_filled|outbox_failures|sms_reports|closures|feed_|webhooks_total"
    "|reads_total|replica_lag|reminders|league_notifications|matchday_notifications|accounts_deleted|mirror_corrections|mirror_comparisons|restrictions|matchday_reports|matchday_removals|filter_classifier|chat_key_resets|codes_refused|budget_refused|outcome=\"(retried|given_up)\"")


def queries(prometheus):
    """Prometheus accepts every expression, and every panel has data unless `MAY_BE_SILENT` matches its expression."""
    silent, count = [], 0
    for where, expression in expressions():
        count += 1
        url = f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        status, body = fetch(url)
        answer = json.loads(body)
        if status != 200 or answer["status"] != "success":
            fault(f"{where}: {answer.get('error')}: {expression}")
        elif not answer["data"]["result"] and where.startswith("dashboard"):
            silent.append((where, expression))
            if not MAY_BE_SILENT.search(expression):
                fault(f"{where}: no data: {expression}")
    for where, expression in silent:
        print(f"  no data: {where}: {' '.join(sorted(names_in(expression)))}")
    names_url = f"{prometheus}/api/v1/label/__name__/values"
    known = {name for name in json.loads(fetch(names_url)[1])["data"] if name.startswith("matchday_")}
    _, seen = exported()
    for name in sorted(known - seen):
        fault(f"the service exports {name}, which was not found in the code")
    firing = json.loads(fetch(f"{prometheus}/api/v1/alerts")[1])["data"]["alerts"]
    print(f"{count} expressions are valid; all of the dashboard have data, except {len(silent)} that need a failure, a provider, a feed "
          f"or an endpoint; {len(known)} series names were seen; firing alerts: "
          f"{sorted({alert['labels']['alertname'] for alert in firing}) or 'none'}")


def main():
    command, *arguments = sys.argv[1:]
    {"names": names, "runbook": runbook, "commands": commands, "dashboard": dashboard, "compose": compose, "dockerfile": dockerfile,
     "chart": chart, "use": use, "queries": queries, "requirements": requirements, "web": web}[command](*arguments)
    for text in FAULTS:
        print(f"FAULT {text}", file=sys.stderr)
    sys.exit(bool(FAULTS))


if __name__ == "__main__":
    main()
