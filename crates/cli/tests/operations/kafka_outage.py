"""Kills a broker of Kafka for a minute while lines arrive, and measures how fast logd catches up after that.

    python3 kafka_outage.py target/release/ringwise JARS [LINES/S [FLAGS OF LOGD...]]

JARS is the directory that Maven fills from crates/cli/tests/kafka/pom.xml (dependency:copy-dependencies). The broker,
logd and the load share this machine's processors and disk. The load goes on until less than a tenth of a second's lines
wait, or for 66 s after the broker takes lines again. At the end everything that was stored has to be in Kafka.
"""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

OUTAGE = 60  # seconds
AFTER = 66  # seconds in which it may catch up
PATIENCE = 300  # seconds that anything else is waited for
PARTITIONS = 4
TICKS = os.sysconf("SC_CLK_TCK")


def wait_until(what, is_done, seconds=PATIENCE):
    until = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > until:
            return False if what is None else sys.exit(f"waited in vain: {what}")
        time.sleep(0.1)
    return True


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def accepts(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Broker:
    """One broker, which is its own controller."""

    def __init__(self, jars, directory):
        self.java = ["java", "-Xmx1g", "-cp", f"{jars}/*"]
        self.directory, self.port, control = directory, free_port(), free_port()
        self.properties = directory / "broker.properties"
        self.properties.write_text(
            "process.roles=broker,controller\nnode.id=0\ncontroller.listener.names=CONTROLLER\n"
            f"controller.quorum.voters=0@127.0.0.1:{control}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{control}\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"log.dirs={directory}/data\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
        )
        self.tool("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", str(self.properties))
        self.start()

    def make_topics(self):
        for topic, partitions in ("logs", PARTITIONS), ("logs-progress", 1):
            self.tool(
                "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", f"127.0.0.1:{self.port}", "--create",
                "--topic", topic, "--partitions", str(partitions), "--replication-factor", "1",
            )

    def tool(self, *command):
        done = subprocess.run([*self.java, *command], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{command[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self):
        log = open(self.directory / "broker.log", "ab")
        self.child = subprocess.Popen([*self.java, "kafka.Kafka", str(self.properties)], stdout=log, stderr=log)
        wait_until("the broker", lambda: accepts(self.port))

    def records(self):
        """How many records the topic has; in transactions their ends count too."""
        offsets = self.tool("org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", f"127.0.0.1:{self.port}",
                            "--topic", "logs")
        return sum(int(line.rsplit(":", 1)[1]) for line in offsets.split())

    def kill(self):
        self.child.kill()
        self.child.wait()


def cpu_s(pid, thread=""):
    """CPU time of a process, or of its threads whose names begin so."""
    seconds = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            name, fields = re.match(r"\d+ \((.*)\) (.*)", (task / "stat").read_text()).groups()
        except FileNotFoundError:
            continue
        if name.startswith(thread):
            seconds += sum(map(int, fields.split()[11:13])) / TICKS
    return seconds


class Logd:
    def __init__(self, ringwise, directory, broker, flags):
        port = free_port()
        self.page, self.address = f"127.0.0.1:{free_port()}", f"127.0.0.1:{port}"
        command = [ringwise, "logd", "--listen", self.address, "--http", self.page, "--dir", directory]
        command += ["--kafka", f"127.0.0.1:{broker.port}", "--kafka-topic", "logs", *flags]
        self.child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until("logd", lambda: accepts(port))

    def figure(self, name):
        with urllib.request.urlopen(f"http://{self.page}/metrics", timeout=PATIENCE) as answer:
            found = re.findall(rf"^{name}(?:{{.*}})? (\d+)", answer.read().decode(), re.M)
        return sum(map(int, found))

    def end(self):
        self.child.terminate()
        self.child.wait()


def measure(ringwise, broker, logd, rate, loads):
    accepted = lambda: logd.figure("logd_accepted_lines_total")
    shipped = lambda: logd.figure("logd_ship_shipped_lines_total")
    waiting = lambda: logd.figure("logd_ship_lag_lines")
    command = [ringwise, "load", "log", "--target", logd.address, "--connections", "64", "--burst", "100"]
    command += ["--rate", rate, "--ack", "durable", "--duration", "10m"]
    load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    loads.append(load)
    time.sleep(15)
    print(f"before: {accepted()} lines stored, {shipped()} shipped", flush=True)
    broker.kill()
    time.sleep(OUTAGE)
    broker.start()
    before = shipped()
    wait_until("shipping", lambda: shipped() > before)
    looks = lambda: (time.monotonic(), accepted(), shipped(), cpu_s(logd.child.pid),
                     cpu_s(logd.child.pid, "logd-ship"), cpu_s(broker.child.pid), cpu_s(load.pid))
    most, first = waiting(), looks()
    is_done = wait_until(None, lambda: waiting() < int(rate) // 10, AFTER)
    last, left = looks(), waiting()
    if load.poll() is not None:
        sys.exit(f"the load ended too early: status {load.returncode}")
    seconds, stored, sent, *cpu = (b - a for a, b in zip(first, last))
    print(f"waiting {most} lines, and {left} after {seconds:.0f} s; caught up: {'yes' if is_done else 'no'}")
    print(f"intake {stored / seconds:.0f} lines/s, shipped {sent / seconds:.0f}: {sent / stored:.2f} times the intake")
    names = "logd", "of which ships", "broker", "load"
    print("processors: " + ", ".join(f"{name} {own / seconds:.2f}" for name, own in zip(names, cpu)), flush=True)
    load.terminate()
    load.wait()
    wait_until("the rest", lambda: accepted() == shipped())
    stored = broker.records()
    if stored < shipped():
        sys.exit(f"{shipped()} lines were shipped, and Kafka has {stored} records")
    print(f"all {shipped()} lines are in Kafka; errors: {logd.figure('logd_ship_errors_total')}")


def main():
    ringwise, jars, rate, *flags = [*sys.argv[1:], "500000"][: max(3, len(sys.argv) - 1)]
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as running:
        directory = pathlib.Path(place)
        broker = Broker(jars, directory)
        running.callback(broker.kill)
        broker.make_topics()
        logd = Logd(ringwise, directory / "logd", broker, flags)
        running.callback(logd.end)
        loads = []
        running.callback(lambda: [load.kill() for load in loads])
        measure(ringwise, broker, logd, rate, loads)


main()
