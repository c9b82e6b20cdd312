"""Sends raw request lines through the proxies, for deploy/check. Requires Python 3.10 or newer.

A proxy and Synapse may parse the same path differently. Every endpoint that a proxy must close is therefore requested in many
spellings, as raw bytes over a socket, because HTTP libraries normalise paths.

  check_proxy.py spellings NAME=URL… UPSTREAM_PORT
      With a recorder on UPSTREAM_PORT as upstream: no spelling of a closed endpoint may reach it, and the paths of regular
      clients must reach it unchanged.
  check_proxy.py effects NAME=URL… SYNAPSE_URL TOKEN USER ROOM -- PSQL…
      With a real Synapse as upstream, and the token of a user who is not in the room: nothing may change there. Afterwards the
      same requests go to Synapse directly and must have an effect, which proves that the check can fail.
  check_proxy.py limits URL UPSTREAM_PORT
      With the recorder as upstream, and limits of one request a second, a burst of 20, two open requests and three streams:
      further requests are refused with 429 and Retry-After, and open streams are not counted with other requests.
"""

import collections
import http.server
import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

HOST = "chat.example.org"
Place = collections.namedtuple("Place", "before word after reads")

# Closed endpoints. `reads` marks endpoints that are also closed for reading. {room}, {user} and {alias} are filled in.
CLIENT = "/_matrix/client/v3/"
PLACES = [
    *[Place(CLIENT, word, "", True) for word in (
        "register", "login", "createRoom", "publicRooms", "account/deactivate", "account/password", "account/3pid")],
    *[Place(f"/_matrix/client/{version}/", "createRoom", "", True) for version in (
        "r0", "api/v1", "unstable", "unstable/org.example", "v1")],
    Place(CLIENT, "join", "/{room}", False),
    Place(CLIENT, "knock", "/{room}", False),
    Place(CLIENT, "directory", "/room/{alias}", False),
    Place(CLIENT, "directory", "/list/room/{room}", False),
    Place(CLIENT, "profile", "/{user}/displayname", False),
    Place(CLIENT, "profile", "/{user}/avatar_url", False),
    Place(CLIENT + "rooms/{room}/", "join", "", False),
    Place(CLIENT + "rooms/{room}/", "upgrade", "", False),
    Place(CLIENT + "rooms/{room}/state/", "m.room.member", "/{user}", False),
    Place("/_synapse/admin/v1/", "server_version", "", True),
    Place("/_synapse/admin/v1/", "register", "", True),
    Place("/_synapse/client/", "password_reset", "", True),
    Place("/_matrix/federation/v1/", "version", "", True),
    Place("/_matrix/key/v2/", "server", "", True),
    Place("/_matrix/app/v1/", "ping", "", True),
]

# Requests of regular clients, which must arrive unchanged.
OPEN = [
    ("GET", "/_matrix/client/versions"),
    ("GET", "/_matrix/client/v3/sync?filter=%7B%22a%22%3A%22..%2F..%22%7D&since=s1/../2&timeout=0"),
    ("GET", "/_matrix/client/v3/joined_rooms"),
    ("GET", "/_matrix/client/v3/account/whoami"),
    ("GET", "/_matrix/client/v3/profile/%40ada%3Aexample.org"),
    ("GET", "/_matrix/client/v3/directory/room/%23match_1%3Aexample.org"),
    ("GET", "/_matrix/client/v3/rooms/!a%3Aexample.org/state/m.room.member/%40ada%3Aexample.org"),
    ("GET", "/_matrix/client/v3/rooms/!a:example.org/joined_members"),
    ("PUT", "/_matrix/client/v3/rooms/!a%3Aexample.org/send/m.room.message/m1700000000000.1~x"),
    ("PUT", "/_matrix/client/v3/rooms/!a%3Aexample.org/state/m.room.name/"),
    ("PUT", "/_matrix/client/v3/rooms/!a%3Aexample.org/state/m.room.topic"),
    ("POST", "/_matrix/client/v3/rooms/!a%3Aexample.org/receipt/m.read/%24abc-_DEF"),
    ("POST", "/_matrix/client/v3/rooms/!a%3Aexample.org/leave"),
    ("POST", "/_matrix/client/v3/rooms/!a%3Aexample.org/invite"),
    ("PUT", "/_matrix/client/v3/rooms/!a%3Aexample.org/typing/%40ada%3Aexample.org"),
    ("POST", "/_matrix/client/v3/keys/upload"),
    ("PUT", "/_matrix/client/v3/sendToDevice/m.room.encrypted/m1.2"),
    # Session ids of encrypted rooms are base64, and may contain leading, trailing and doubled slashes.
    ("PUT", "/_matrix/client/v3/room_keys/keys/!a%3Aexample.org/%2FAb%2Fc%2BD%2F%2Fe%2F?version=1"),
    ("PUT", "/_matrix/client/v3/user/%40ada%3Aexample.org/account_data/m.direct"),
    ("POST", "/_matrix/client/v3/user_directory/search"),
    ("POST", "/_matrix/client/v3/logout"),
    ("OPTIONS", "/_matrix/client/v3/rooms/!a%3Aexample.org/send/m.room.message/m1"),
    ("POST", "/_matrix/media/v3/upload?filename=a..b%2F../c.png"),
    ("GET", "/_matrix/client/v1/media/download/example.org/abcDEF/..hidden...png"),
    ("GET", "/_matrix/client/v1/media/thumbnail/example.org/abcDEF?width=32&height=32"),
]


# A proxy may forward these, unless they start with a closed path. Synapse decodes only once, so it does not recognise
# them as closed endpoints.
TWICE = "encoded twice"


def encoded(text):
    return "".join(f"%{ord(letter):02x}" for letter in text)


def spellings(place, names):
    """Every spelling that a proxy or Synapse might parse as this endpoint, with a name for messages."""
    before, word, after, _ = (part.format(**names) if isinstance(part, str) else part for part in place)
    plain = before + word + after
    yield "plain", plain
    for query in ("?", "?x=1", "?/../../sync", "?%2f.."):
        yield "query", plain + query
    yield "trailing slash", plain + "/"
    yield "transaction id", plain + "/txn1"
    for out in ("/..", "/.", "/../..", "/../../..", "/%2e%2e", "/%2E%2e/%2e%2E", "/.%2e", "/%2e.", "/t/../..", "/t%2F..", "/t%2F..%2F..",
                "/t%2f..%2f..%2f..", "/t%2F..%2F..%2F..%2F..", "/t%2f%2e%2e%2f%2e%2e", "/..%2f..", "/..%2F", "/../sync", "/..%2Fsync",
                "/..;/", "/..;x", "/..?x", "/..#", "/..%5c..", "/..\\..", "%2f..", "%2F..%2F.."):
        yield "dots out", plain + out
    for inward in ("x/../", "./", "x/%2e%2e/", "%2e/", ".%2e/", "x%2f..%2f", "x%2F%2E%2E/", "x/..%2f", "x\\..\\", "x%5c..%5c", "x;/../"):
        yield "dots in", before + inward + word + after
    yield "dots in", f"/_matrix/client/../..{plain}"
    yield "dots in", f"/_matrix/media/%2e%2e/%2e%2e{plain}"
    yield "dots in", f"/_matrix/client/v3/sync/..%2f..%2f..%2f..{plain}"
    yield "encoded", before + encoded(word[0]) + word[1:] + after
    yield "encoded", before + word[:-1] + encoded(word[-1]).upper().replace("X", "x") + after
    yield "encoded", before + encoded(word) + after
    yield "encoded", plain.replace("/_", "/%5f", 1).replace("matrix", "m%61trix")
    yield "encoded", plain.replace("client", "clien%74").replace("synapse", "synaps%65").replace("v1", "v%31")
    yield TWICE, before + encoded(word[0]).replace("%", "%25") + word[1:] + after
    yield TWICE, before[:-1] + "%252f" + word + after
    yield TWICE, plain + "/%252e%252e"
    yield TWICE, plain + "%252f.."
    yield "doubled slash", "/" + plain
    yield "doubled slash", before + "/" + word + after
    yield "doubled slash", before[:-1].replace("/", "//") + "/" + word + after
    yield "doubled slash", plain + "//"
    yield "doubled slash", f"/{plain}/.."
    yield "encoded slash", before[:-1] + "%2f" + word + after
    yield "encoded slash", before[:-1] + "%2F" + word + after
    yield "encoded slash", before + word + after.replace("/", "%2f", 1) + "%2f"
    yield "encoded slash", before + word + after + "%2Ftxn1"
    yield "parameter", plain + ";x"
    yield "parameter", plain + ";x=1/txn1"
    yield "parameter", plain + "/;x"
    yield "upper case", before + word.upper() + after
    yield "upper case", before.upper() + word.upper() + after
    yield "fragment", plain + "#"
    yield "fragment", plain + "#/../../sync"
    yield "backslash", plain + "\\"
    yield "backslash", before[:-1] + "\\" + word + after
    yield "control", plain + "%00"
    yield "control", plain + "/%0a"
    yield "control", plain + "\0"
    yield "control", plain + "\t"
    yield "not ASCII", plain + "/\xff"
    yield "not ASCII", before + "x/\xc0\xae\xc0\xae/" + word + after
    for origin in (f"http://{HOST}", f"https://{HOST}", f"HTTP://{HOST}:80", f"http://user@{HOST}"):
        yield "absolute", origin + plain
        yield "absolute", origin + plain + "/txn1"
        yield "absolute", origin + plain + "/.."
        yield "absolute", origin + before + encoded(word) + after
        yield "absolute", origin + "/" + plain


# deploy/check created the certificate; its issuer is not checked.
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TLS.check_hostname, TLS.verify_mode = False, ssl.CERT_NONE


class Connection:
    """A connection that is reused until the proxy closes it."""

    def __init__(self, url, host=HOST, source="127.0.0.1"):
        self.url, self.host, self.source, self.socket = urllib.parse.urlsplit(url), host, source, None

    def open(self):
        plain = socket.create_connection((self.url.hostname, self.url.port), timeout=20, source_address=(self.source, 0))
        if self.url.scheme == "https":
            plain = TLS.wrap_socket(plain, server_hostname=self.host)
        self.socket, self.file = plain, plain.makefile("rb")

    def close(self):
        if self.socket:
            self.file.close()
            self.socket.close()
            self.socket = None

    def request(self, method, target, headers=(), body=b""):
        """Sends a request with an unmodified target; returns status, headers and body of the response."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.host}", *headers]
        if method not in ("GET", "HEAD", "OPTIONS"):
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        else:
            body = b""
        message = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
        kept = self.socket is not None
        try:
            if not kept:
                self.open()
            self.socket.sendall(message)
            status_line = self.file.readline()
        except OSError:
            status_line = b""
        if not status_line:
            self.close()
            if kept:  # closed by the proxy after the previous response
                return self.request(method, target, headers, body)
            return 0, {}, b""
        status = int(status_line.split()[1])
        received = {}
        while (line := self.file.readline().strip()):
            name, _, value = line.decode("latin-1").partition(":")
            received[name.lower()] = value.strip()
        if method == "HEAD" or status in (204, 304):
            content = b""
        elif received.get("transfer-encoding") == "chunked":
            content = b""
            while (size := int(self.file.readline().split(b";")[0], 16)):
                content += self.file.read(size)
                self.file.readline()
            self.file.readline()
        elif "content-length" in received:
            content = self.file.read(int(received["content-length"]))
        else:
            content = self.file.read()
            received["connection"] = "close"
        if received.get("connection", "").lower() == "close":
            self.close()
        return status, received, content


def named(arguments):
    """NAME=URL arguments as pairs, and all other arguments."""
    pairs = [argument.split("=", 1) for argument in arguments if re.match(r"[a-z]+=http", argument)]
    return pairs, [argument for argument in arguments if not re.match(r"[a-z]+=http", argument)]


class Recorder(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen = []
    # Requests with ?wait get their response once this is set.
    released = threading.Event()

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        Recorder.seen.append(self.requestline.rsplit(" ", 1)[0])
        if "?wait" in self.requestline:
            Recorder.released.wait(30)
        self.send_response(299)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = answer

    def log_message(self, *arguments):
        pass


def record(port):
    recorder = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Recorder)
    threading.Thread(target=recorder.serve_forever, daemon=True).start()
    return recorder


REFUSED = (400, 403, 404, 405)


def closed_requests(names):
    for place in PLACES:
        for kind, target in spellings(place, names):
            for method in ("POST", "PUT", "DELETE", *(["GET"] if place.reads else [])):
                yield kind, method, target


def check_spellings(*arguments):
    proxies, (port,) = named(arguments)
    recorder = record(port)
    names = {"room": "!a:example.org", "user": "@ada:example.org", "alias": "%23mine:example.org"}
    faults = []
    for name, url in proxies:
        connection, count, kinds = Connection(url), 0, collections.Counter()
        for kind, method, target in closed_requests(names):
            if kind == TWICE:
                continue
            Recorder.seen.clear()
            status, _, _ = connection.request(method, target, body=b"{}")
            count, kinds[kind] = count + 1, kinds[kind] + 1
            if Recorder.seen or status not in REFUSED:
                faults.append(f"{name}: {method} {target!r} ({kind}) returned {status} and reached the homeserver: {Recorder.seen}")
        for method, target in OPEN:
            Recorder.seen.clear()
            status, _, content = connection.request(method, target, body=b"{}")
            if Recorder.seen != [f"{method} {target}"]:
                faults.append(f"{name}: {method} {target} must reach the homeserver unchanged, but got {status} {content[:80]!r} {Recorder.seen}")
        connection.close()
        if not faults:
            print(f"{name}: {len(PLACES)} closed endpoints were refused in {count} requests of {len(kinds)} kinds; {len(OPEN)} requests of "
                  "regular clients passed unchanged")
    recorder.shutdown()
    return faults


def check_effects(*arguments):
    split = arguments.index("--")
    proxies, (synapse, token, user, room) = named(arguments[:split])
    psql = arguments[split + 1:]
    server = user.partition(":")[2]
    alias = f"#closed-check:{server}"
    # All possible effects of the requests below, for this user, room and alias.
    state = f"""
      select 'rooms', count(*) from rooms where creator = '{user}' union all
      select 'memberships', count(*) from room_memberships where user_id = '{user}' union all
      select 'events', count(*) from events where sender = '{user}' union all
      select 'names', count(*) from profiles where full_user_id = '{user}' and displayname = 'Closed Check' union all
      select 'avatars', count(*) from profiles where full_user_id = '{user}' and avatar_url = 'mxc://closed/check' union all
      select 'aliases', count(*) from room_aliases where room_alias = '{alias}' union all
      select 'lists', count(*) from rooms where room_id = '{room}' and is_public union all
      select 'upgrades', count(*) from events where room_id = '{room}' and type = 'm.room.tombstone' union all
      select 'accounts', count(*) from users where name like '@closed-check%' or (name = '{user}' and deactivated <> 0) union all
      select 'devices', count(*) from devices where user_id = '{user}'
      order by 1"""

    def snapshot():
        return subprocess.run([*psql, "-c", state], capture_output=True, text=True, check=True).stdout.split()

    quoted = urllib.parse.quote
    names = {"room": quoted(room, safe="!"), "user": quoted(user, safe=""), "alias": quoted(alias, safe="")}
    headers = [f"Authorization: Bearer {token}"]
    # One body that is valid for every closed endpoint.
    body = json.dumps({"name": "closed", "membership": "join", "displayname": "Closed Check", "avatar_url": "mxc://closed/check",
                       "room_id": room, "visibility": "public", "new_version": "10", "username": "closed-check", "password": "x",
                       "type": "m.login.dummy", "auth": {"type": "m.login.dummy"}, "new_password": "y"}).encode()
    before, faults = snapshot(), []
    for name, url in proxies:
        connection, statuses = Connection(url), collections.Counter()
        for kind, method, target in closed_requests(names):
            status, _, content = connection.request(method, target, headers, body)
            statuses[status] += 1
            if status not in REFUSED:
                faults.append(f"{name}: {method} {target!r} ({kind}) returned {status}: {content[:120]!r}")
        connection.close()
        if (after := snapshot()) != before:
            faults.append(f"{name}: the homeserver was changed: {before} became {after}")
            before = after
        elif not faults:
            print(f"{name}: with a user's token {sum(statuses.values())} requests had no effect: {dict(sorted(statuses.items()))}")

    # Without a proxy, the same spellings must have an effect.
    connection, changed = Connection(synapse), []
    direct = [
        ("PUT", f"{CLIENT}createRoom/.."), ("PUT", f"{CLIENT}createRoom/txn1"),
        ("PUT", f"{CLIENT}join/{names['room']}/t%2F..%2F..%2F.."), ("PUT", f"{CLIENT}profile/{names['user']}/displayname"),
        ("PUT", f"{CLIENT}rooms/{names['room']}/state/m%2Eroom.member/{names['user']}"),
    ]
    for method, target in direct:
        before = snapshot()
        status, _, content = connection.request(method, target, headers, body)
        if status != 200 or (snapshot() == before and "state" not in target):
            faults.append(f"Synapse itself does not execute {method} {target}: {status} {content[:120]!r}, so the check above proves little")
        else:
            changed.append(target)
    connection.close()
    print(f"Synapse itself executes {len(changed)} of them")
    return faults


def check_limits(url, port):
    recorder, faults = record(port), []
    for host, stream, other in (
        ("api.example.org", "/api/auth/stream", "/api/auth/events"),
        ("chat.example.org", "/_matrix/client/v3/sync", "/_matrix/client/v3/account/whoami"),
    ):
        Recorder.seen.clear()
        Recorder.released.clear()
        passed, refused = collections.Counter(), []

        def send(path, host=host, passed=passed, refused=refused):
            connection = Connection(url, host)
            status, headers, content = connection.request("GET", path)
            connection.close()
            if status == 429:
                refused.append((headers, content))
            else:
                passed[status] += 1
            return status

        waiting = []
        # Start requests one by one, so that it is certain which one exceeds the limit.
        for path, room in ((stream, 3), (other, 2)):
            for _ in range(room):
                count = len(Recorder.seen)
                waiting.append(threading.Thread(target=send, args=(f"{path}?wait",)))
                waiting[-1].start()
                ends = time.monotonic() + 10
                while len(Recorder.seen) == count and time.monotonic() < ends:
                    time.sleep(0.01)
                if len(Recorder.seen) == count:
                    faults.append(f"{host}{path}: fewer than {room} concurrent requests are admitted")
            if (status := send(path)) != 429:
                faults.append(f"{host}{path}: one more than {room} concurrent requests returned {status}")
        Recorder.released.set()
        for thread in waiting:
            thread.join()
        if passed != {299: 5} or len(refused) != 2:
            faults.append(f"{host}: of 7 requests, 5 must pass: {dict(passed)}, and {len(refused)} were refused")
        for _ in range(60):
            send(other)
        if passed[299] < 15 or len(refused) < 20:
            faults.append(f"{host}: of 60 requests in a burst some must pass and some must be refused: {dict(passed)}, and {len(refused)} were refused")
        elsewhere = Connection(url, host, "127.0.0.2")
        if (status := elsewhere.request("GET", other)[0]) != 299:
            faults.append(f"{host}: a request from another address returned {status}")
        elsewhere.close()
        for headers, content in refused:
            if not headers.get("retry-after") or not {"code", "errcode"} & json.loads(content).keys():
                faults.append(f"{host}: a refusal has no Retry-After or no code: {headers} {content!r}")
                break
        print(f"{host}: limits by address refuse {len(refused)} of {len(refused) + sum(passed.values())} requests, with Retry-After")
    recorder.shutdown()
    return faults


def main():
    command, *arguments = sys.argv[1:]
    faults = {"spellings": check_spellings, "effects": check_effects, "limits": check_limits}[command](*arguments)
    for text in faults[:40]:
        print(f"FAULT {text}", file=sys.stderr)
    if len(faults) > 40:
        print(f"FAULT and {len(faults) - 40} more", file=sys.stderr)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
