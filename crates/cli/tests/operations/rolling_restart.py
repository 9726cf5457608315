"""Restarts three daemons behind HAProxy, each in turn, while clients send by every protocol that acknowledges.

    python3 rolling_restart.py target/release/ringwise [ROUNDS]

The balancer runs with dist/haproxy.cfg, so docs/how-to/operate-logd.md describes what is tested here. A daemon ends by
SIGTERM, and the next one only when it is ready again and every client has gone on. Afterwards every acknowledged line
has to be stored: once if its client has a name, and else at least once, more often only if it was sent more than once.
"""

import collections
import http.client
import itertools
import json
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "crates/log/examples"))
import ringwise_log  # noqa: E402  (found by the path above)

BATCH = 100  # lines that a client sends before it waits for their acknowledgement
PATIENCE = 60  # seconds that anything is waited for
WAIT = 4  # seconds that a batch may wait: a drain of 2.5 s at most, a start, and a pause of the balancer
PAUSE = 0.01  # seconds between the batches of a client
NETWORK = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}"  # nobody else listens there
BALANCER = f"{NETWORK}.10"


def wait_until(what, is_done):
    until = time.monotonic() + PATIENCE
    while not is_done():
        if time.monotonic() > until:
            sys.exit(f"waited in vain: {what}")
        time.sleep(0.02)


class Node:
    """A daemon, which keeps its directory when it is started again."""

    def __init__(self, ringwise, directory, number):
        self.ringwise, self.directory = ringwise, directory / f"logd-{number}"
        self.address = f"{NETWORK}.{number}"
        self.log = open(directory / f"logd-{number}.log", "ab")
        self.start()

    def start(self):
        ports = {"listen": 9000, "http": 9001, "http-intake": 9002, "relp-intake": 2514, "fluent-intake": 24224}
        options = [f"--{option}={self.address}:{port}" for option, port in ports.items()]
        command = [self.ringwise, "logd", "--dir", self.directory, "--names", "anyone", *options]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        wait_until(f"{self.address} is ready", self.is_ready)

    def is_ready(self):
        if (status := self.process.poll()) is not None:
            self.fail(status)
        try:
            return urllib.request.urlopen(f"http://{self.address}:9001/readyz", timeout=5).status == 200
        except (urllib.error.URLError, OSError):
            return False

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        if status := self.process.wait(PATIENCE):
            self.fail(status)

    def fail(self, status):
        log = pathlib.Path(self.log.name).read_text()
        sys.exit(f"{self.address} ended with status {status}:\n{log}")

    def lines(self):
        """The stored lines, as pairs of a client and a number."""
        subprocess.run([self.ringwise, "logd", "verify", self.directory], check=True, stdout=subprocess.DEVNULL)
        stored = subprocess.run([self.ringwise, "logd", "cat", self.directory], check=True, stdout=subprocess.PIPE)
        for line in stored.stdout.splitlines():
            event = json.loads(line)
            event = event.get("record", event)  # of Fluent Forward
            yield event["client"], event["line"]


class Sender(threading.Thread):
    """A client. It numbers its lines, and sends the next batch when the last one is acknowledged."""

    kind, has_name = "", False

    def __init__(self, number, end):
        super().__init__(daemon=True)
        self.client, self.end_asked = f"{self.kind.replace(' ', '-')}-{number}", end
        self.lines = 0  # acknowledged
        self.repeated = set()  # numbers that were sent more than once
        self.breaks = 0  # connections that ended, and requests that failed
        self.longest = 0.0  # seconds that a batch waited
        self.failure = None

    def run(self):
        try:
            while not self.end_asked.is_set():
                numbers = range(self.lines, self.lines + BATCH)
                began = time.monotonic()
                self.store(numbers)
                self.longest = max(self.longest, time.monotonic() - began)
                self.lines += BATCH
                time.sleep(PAUSE)
        except BaseException as failure:  # told at the end
            self.failure = failure
        self.drop()

    def line(self, number):
        return json.dumps({"client": self.client, "line": number})

    def store(self, numbers):
        """Sends these lines until they are acknowledged."""
        for attempt in itertools.count():
            try:
                return self.attempt(numbers)
            except OSError:  # also of a connection that is closed
                if attempt * 0.05 > PATIENCE:
                    raise
                self.breaks += 1
                self.repeated.update(numbers)
                self.drop()
                time.sleep(0.05)

    def receive(self, last):
        """Receives until these bytes have come."""
        answer = b""
        while last not in answer:
            if not (received := self.socket.recv(65536)):
                raise ConnectionError("closed")
            answer += received
        return answer


class Native(ringwise_log.Client):
    """The client of the example, which knows what it sends again."""

    def __init__(self, sender, name):
        self.sender = sender
        super().__init__(BALANCER, 9000, name=name)

    async def _serve(self):  # for each connection
        self.sender.breaks += 1
        self.sender.repeated.update(json.loads(line)["line"] for line in list(self._lines))
        await super()._serve()


class Unnamed(Sender):
    kind = "LOGD 1"

    def __init__(self, number, end):
        super().__init__(number, end)
        self.breaks = -1  # the first connection
        self.native = Native(self, self.client if self.has_name else None)

    def store(self, numbers):
        for number in numbers:
            self.native.send(self.line(number))
        if not self.native.flush(PATIENCE):
            raise TimeoutError(f"not acknowledged: {self.native.failure!r}")

    def drop(self):
        self.native.close(0)


class Named(Unnamed):
    kind, has_name = "LOGD 1 name", True


class Requests(Sender):
    kind = "HTTP"
    connection = None

    def attempt(self, numbers):
        body = "\n".join(map(self.line, numbers))
        self.connection = self.connection or http.client.HTTPConnection(BALANCER, 9002, timeout=PATIENCE)
        try:
            self.connection.request("POST", "/ingest", body, {"Content-Type": "application/x-ndjson"})
            answer = self.connection.getresponse()
            told = answer.read()
        except http.client.HTTPException as failure:
            raise ConnectionError(repr(failure)) from failure
        if answer.status in (429, 503):
            raise ConnectionError(f"status {answer.status}")
        if answer.status != 200 or json.loads(told)["lines"] != len(numbers):
            raise ValueError(f"status {answer.status}: {told}")

    def drop(self):
        self.connection = None


class Relp(Sender):
    kind = "RELP"
    socket = None

    def attempt(self, numbers):
        if not self.socket:
            self.socket = socket.create_connection((BALANCER, 2514), timeout=PATIENCE)
            offers = b"relp_version=0\ncommands=syslog"
            self.socket.sendall(b"1 open %d %s\n" % (len(offers), offers))
            self.receive(b"commands=syslog\n")
            self.number = 1
        frames = b""
        for number in numbers:
            line = self.line(number).encode()
            self.number += 1
            frames += b"%d syslog %d %s\n" % (self.number, len(line), line)
        self.socket.sendall(frames)
        self.receive(b"\n%d rsp 6 200 OK\n" % self.number)

    def drop(self):
        if self.socket:
            self.socket.close()
        self.socket = None


class Fluent(Relp):
    kind = "Fluent"

    def attempt(self, numbers):
        self.socket = self.socket or socket.create_connection((BALANCER, 24224), timeout=PATIENCE)
        text = lambda word: bytes([0xD9, len(word)]) + word.encode()  # MessagePack: str 8
        number = lambda value: b"\xce" + struct.pack(">I", value)  # uint 32
        chunk = f"{self.client}-{numbers[0]}"
        entries = b"\xdc" + struct.pack(">H", len(numbers))  # array 16
        for line in numbers:
            record = b"\x82" + text("client") + text(self.client) + text("line") + number(line)
            entries += b"\x92" + number(1_600_000_000) + record
        self.socket.sendall(b"\x93" + text("app") + entries + b"\x81" + text("chunk") + text(chunk))
        self.receive(chunk.encode())


def start_balancer(directory):
    config = (ROOT / "dist/haproxy.cfg").read_text().replace("bind :", f"bind {BALANCER}:")
    for number in (1, 2, 3):
        config = config.replace(f" logd-{number}:", f" {NETWORK}.{number}:")
    path = directory / "haproxy.cfg"
    path.write_text(config)
    log = open(directory / "haproxy.log", "ab")
    return subprocess.Popen(["haproxy", "-db", "-f", path], stdout=log, stderr=log)


def restart(nodes, senders, rounds):
    for node in nodes * rounds:
        node.end()
        node.start()
        before = [sender.lines for sender in senders]
        has_gone_on = lambda: all(
            sender.lines > lines + BATCH or sender.failure for sender, lines in zip(senders, before)
        )
        wait_until("every client goes on", has_gone_on)


def check_metrics(node):
    """Returns the metrics that the chapter names and that do not exist. Those of shipping need Kafka."""
    named = re.findall(r"logd_[a-z_]*[a-z]", (ROOT / "docs/how-to/operate-logd.md").read_text())
    told = urllib.request.urlopen(f"http://{node.address}:9001/metrics", timeout=5).read().decode()
    there = set(re.findall(r"^logd_\w+", told, re.MULTILINE))
    missing = {name for name in named if not name.startswith("logd_ship_")} - there
    return [f"docs/how-to/operate-logd.md: there is no {name}" for name in sorted(missing)]


def check(nodes, senders):
    """Compares what was acknowledged with what is stored; returns what is wrong."""
    wrong = []
    stored = [collections.Counter(node.lines()) for node in nodes]
    whole = sum(stored, collections.Counter())
    used = set()  # nodes that have names
    rows = collections.defaultdict(lambda: [0, 0, 0, 0, 0.0])
    for sender in senders:
        counts = {number: whole[sender.client, number] for number in range(sender.lines)}
        lost = [number for number, count in counts.items() if not count]
        twice = {number for number, count in counts.items() if count > 1}
        if sender.failure or lost:
            wrong.append(f"{sender.client}: {sender.failure!r}, {len(lost)} lines are lost: {lost[:5]}")
        if sender.longest > WAIT:
            wrong.append(f"{sender.client}: a batch waited {sender.longest:.1f} s")
        if sender.has_name and twice:
            wrong.append(f"{sender.client}: {len(twice)} lines are stored more than once")
        if twice - sender.repeated:
            wrong.append(f"{sender.client}: sent once, and stored more often: {sorted(twice - sender.repeated)[:5]}")
        places = [at for at, lines in enumerate(stored) if any(client == sender.client for client, _ in lines)]
        if sender.has_name and len(places) != 1:
            wrong.append(f"{sender.client}: its lines are on {len(places)} nodes")
        used.update(places if sender.has_name else ())
        if sender.has_name and sender.breaks < 1:
            wrong.append(f"{sender.client}: no restart reached it")
        row = rows[sender.kind]
        rows[sender.kind] = [
            row[0] + 1, row[1] + sender.lines, row[2] + sender.breaks, row[3] + len(twice), max(row[4], sender.longest)
        ]
    if len(used) < 2:
        wrong.append(f"all names are on the nodes {used}: the balancer does not spread them")
    print("client           clients     lines    breaks   stored twice   longest wait, s")
    for kind, (clients, lines, breaks, twice, longest) in rows.items():
        print(f"{kind:<16} {clients:>7} {lines:>9} {breaks:>9} {twice:>14} {longest:>18.2f}")
    return wrong


def main(ringwise, rounds="3"):
    with tempfile.TemporaryDirectory(prefix="rolling-restart-") as name:
        directory = pathlib.Path(name)
        nodes, balancer = [], start_balancer(directory)
        try:
            for number in (1, 2, 3):
                nodes.append(Node(pathlib.Path(ringwise).resolve(), directory, number))
            wait_until("the balancer listens", lambda: not socket.socket().connect_ex((BALANCER, 9002)))
            end = threading.Event()
            kinds = [Named] * 6 + [Unnamed, Requests, Relp, Fluent] * 2
            senders = [kind(number, end) for number, kind in enumerate(kinds)]
            for sender in senders:
                sender.start()
            restart(nodes, senders, int(rounds))
            end.set()
            for sender in senders:
                sender.join(PATIENCE)
            wrong = check_metrics(nodes[0])
            for node in nodes:
                node.end()
            wrong += check(nodes, senders)
        finally:
            for process in [balancer, *(node.process for node in nodes)]:
                process.kill()
                process.wait()
        if wrong:
            sys.exit("\n".join(wrong))
        print(f"{int(rounds) * len(nodes)} restarts; every acknowledged line is stored")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: rolling_restart.py RINGWISE [ROUNDS]")
    main(*sys.argv[1:])
