"""A client for ringwise logd in Python's standard library.

It follows docs/reference/logd.md: it keeps each line until the daemon acknowledges it, connects again after a lost
connection, drops what the daemon says is stored, and sends the rest. With a name each line is stored once.

    client = Client("127.0.0.1", 9000, name="web-1")
    client.send('{"level":"info","message":"hello"}')
    client.close(timeout=5)

For TLS pass `tls=ssl.create_default_context(cafile="ca.pem")`. As a program it sends the lines of its standard input,
and bytes that are not UTF-8 as U+FFFD: `python3 ringwise_log.py HOST:PORT NAME`.
"""

import collections
import itertools
import random
import selectors
import socket
import ssl
import sys
import threading

FINAL = {"taken", "expired", "name", "unknown"}  # coming again does not help, or does harm


class Refused(Exception):
    """The daemon answered `E 1 ...`; `word` says why."""

    def __init__(self, text):
        super().__init__(f"the daemon refused: {text}")
        self.word = text.split(" ")[0]


class NameShared(Exception):
    """The daemon has lines of this name that another program sent."""


class Client:
    def __init__(self, host, port, name=None, token=None, tls=None, memory=16 << 20, rejected=None):
        self.address, self.name, self.tls, self.memory = (host, port), name, tls, memory
        # Called with each rejected line. An exception of it ends the client.
        self.rejected = rejected or (lambda line, reason: None)
        self.greeting = "LOGD 1" + (f" name={name}" if name else "") + (f" token={token}" if token else "")
        self.failure = None  # why there is no connection, or why the client has ended
        self._lines = collections.deque()  # not acknowledged
        self._bytes = 0
        self._sent = 0  # how many of them this connection has sent
        self._before = None  # the daemon's number of the last line before them
        self._directory = ""  # the daemon's directory that numbers so
        self._ended = False
        self._changed = threading.Condition()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, line):
        """Takes a line of JSON; waits while the lines that are not acknowledged have the memory."""
        data = line.encode()
        if not data or b"\n" in data or b"\r" in data or len(data) > self.memory:
            raise ValueError("a line has no line end within, is not empty, and fits into the memory")
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._bytes + len(data) <= self.memory)
            if self._ended:
                raise ConnectionError(f"the client has ended: {self.failure}") from self.failure
            self._lines.append(data + b"\n")
            self._bytes += len(data)
        self._notify()

    def flush(self, timeout=None):
        """Waits until all lines are acknowledged; says whether they are."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or not self._lines, timeout)
            return not self._lines

    def close(self, timeout=None):
        """Waits as `flush` does, and ends the client. Lines that are left are lost."""
        is_flushed = self.flush(timeout)
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._notify()
        self._thread.join(timeout)
        return is_flushed

    def _notify(self):
        try:
            self._wake.send(b"!")
        except OSError:
            pass  # it has been woken, or has ended

    def _run(self):
        failures = 0  # since the last acknowledgement
        while not self._ended:
            try:
                with self._connect() as connection:
                    self._serve(connection)
            except BaseException as failure:  # nobody may wait for a thread that is gone
                self.failure = failure
                word = getattr(failure, "word", None)
                with self._changed:
                    if word in FINAL or not isinstance(failure, (OSError, ValueError, Refused)):
                        self._end(failure)
                    failures = 0 if self._progressed else failures
                    pause = min((0.005 if word == "busy" else 0.05) * 2 ** min(failures, 20), 10)
                    failures += 1
                    self._changed.wait_for(lambda: self._ended, pause * random.uniform(0.5, 1))

    def _connect(self):
        self._progressed = False
        connection = socket.create_connection(self.address, timeout=10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls:
            connection = self.tls.wrap_socket(connection, server_hostname=self.address[0])
        connection.setblocking(False)
        return connection

    def _serve(self, connection):
        out, answers, self._is_greeted = self.greeting.encode() + b"\n", b"", False
        with selectors.DefaultSelector() as selector:  # select() refuses descriptors from 1024 on
            selector.register(self._woken, selectors.EVENT_READ)
            selector.register(connection, selectors.EVENT_READ)
            while not self._ended:
                out = out or self._next_lines()
                selector.modify(connection, selectors.EVENT_READ | (selectors.EVENT_WRITE if out else 0))
                if any(key.fileobj is self._woken for key, _ in selector.select()):
                    self._woken.recv(4096)
                out, answers = self._exchange(connection, out, answers)

    def _exchange(self, connection, out, answers):
        """Sends and receives what goes without waiting; returns the rest of both."""
        try:
            out = out[connection.send(out):] if out else out
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        try:
            while received := connection.recv(65536):
                *whole, answers = (answers + received).split(b"\n")
                for answer in whole:
                    self._answer(answer.decode())
                if len(answers) > 4096:
                    raise ValueError("an answer without an end")
            raise ConnectionError("the daemon closed the connection")
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        return out, answers

    def _next_lines(self):
        with self._changed:
            if not self._is_greeted:
                return b""
            lines = list(itertools.islice(self._lines, self._sent, self._sent + 500))
            self._sent += len(lines)
            return b"".join(lines)

    def _answer(self, answer):
        kind, _, rest = answer.partition(" ")
        with self._changed:
            if kind == "E" and rest.startswith("1 "):
                raise Refused(rest[2:])
            if kind == "H" and not self._is_greeted:
                stored, directory = (rest.split(" ") + ["", ""])[2:4]  # after the version and the guarantee
                self._greeted(int(stored) if self.name else 0, directory)
            elif kind == "A" and self._is_greeted:
                self._acknowledge(int(rest))
            elif kind == "N" and self._is_greeted:
                number, reason = rest.split(" ")
                if not 0 < int(number) - self._before <= self._sent:
                    raise ValueError(f"strange answer: {answer!r}")
                self._tell(self._lines[int(number) - self._before - 1].decode().rstrip("\n"), reason)
            else:
                raise ValueError(f"strange answer: {answer!r}")

    def _tell(self, line, reason):
        try:
            self.rejected(line, reason)
        except BaseException as failure:
            self._end(failure)  # whatever its kind is, another connection does not help
            raise

    def _end(self, failure):
        self.failure, self._ended = failure, True
        self._changed.notify_all()

    def _greeted(self, stored, directory):
        is_other = self._directory != directory
        self._directory = directory
        if not self.name or self._before is None or is_other or stored < self._before:
            self._before = stored  # numbers begin here; a daemon that forgot lines begins again
        elif stored > self._before + self._sent:
            raise NameShared(f"another program sends as {self.name}")
        self._acknowledge(stored)
        self._is_greeted, self._sent, self.failure = True, 0, None

    def _acknowledge(self, number):
        count = number - self._before
        if not 0 <= count <= self._sent:
            raise ValueError(f"line {number} was not sent")
        for _ in range(count):
            self._bytes -= len(self._lines.popleft()) - 1
        self._before, self._sent = number, self._sent - count
        self._progressed = self._progressed or count > 0
        self._changed.notify_all()


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[1].rpartition(":")[2].isdigit():
        sys.exit("usage: ringwise_log.py HOST:PORT NAME, with lines of JSON on standard input")
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    host, _, port = sys.argv[1].rpartition(":")
    show = lambda line, reason: print(f"rejected ({reason}): {line}", file=sys.stderr)
    client = Client(host, int(port), name=sys.argv[2], rejected=show)
    for text in sys.stdin:
        if text.strip():
            client.send(text.rstrip("\r\n"))
    if not client.close():
        sys.exit(f"ringwise_log: {len(client._lines)} lines are not acknowledged: {client.failure}")
