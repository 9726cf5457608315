"""A client for ringwise logd in Python's standard library.

It follows docs/reference/logd.md: it keeps each line until the daemon acknowledges it, connects again after a lost
connection, drops what the daemon says is stored, and sends the rest. With a name each line is stored once.

    client = Client("127.0.0.1", 9000, name="web-1")
    client.send('{"level":"info","message":"hello"}')
    client.close(timeout=5)

For TLS pass `tls=ssl.create_default_context(cafile="ca.pem")`. As a program it sends the lines of its standard input,
and bytes that are not UTF-8 as U+FFFD: `python3 ringwise_log.py HOST:PORT NAME`.
"""

import asyncio
import collections
import contextlib
import itertools
import random
import socket
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
        self._is_waiting = False  # the client's thread, for lines
        self._changed = threading.Condition()
        self._loop, self._woken, self._closed = asyncio.new_event_loop(), asyncio.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
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
            is_waiting, self._is_waiting = self._is_waiting, False
        if is_waiting:
            self._notify(self._woken)

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
        self._notify(self._closed)
        self._thread.join(timeout)
        return is_flushed

    def _notify(self, event):
        with contextlib.suppress(RuntimeError):  # the client has ended meanwhile
            self._loop.call_soon_threadsafe(event.set)

    def _work(self):
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._run())

    async def _run(self):
        failures = 0  # since the last acknowledgement
        while not self._ended:
            try:
                await self._serve()
            except BaseException as failure:  # nobody may wait for a thread that is gone
                word = getattr(failure, "word", None)
                with self._changed:
                    if self._ended:
                        return
                    self.failure = failure
                    if word in FINAL or not isinstance(failure, (OSError, ValueError, Refused)):
                        self._end(failure)
                    failures = 0 if self._progressed else failures
                    pause = min((0.005 if word == "busy" else 0.05) * 2 ** min(failures, 20), 10)
                    failures += 1
                    self._changed.wait_for(lambda: self._ended, pause * random.uniform(0.5, 1))

    async def _serve(self):
        self._progressed = self._is_greeted = False
        secure = {"ssl": self.tls, "server_hostname": self.address[0], "ssl_handshake_timeout": 10} if self.tls else {}
        connection = socket.create_connection(self.address, timeout=10)
        reader, writer = await asyncio.open_connection(sock=connection, limit=4096, **secure)
        tasks = self._send(writer), self._receive(reader), self._closed.wait()
        tasks = [asyncio.ensure_future(task) for task in tasks]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            writer.transport.abort()
            # asyncio keeps how a connection ended once more, and may print it if nobody asks.
            await asyncio.gather(*tasks, writer.wait_closed(), return_exceptions=True)

    async def _send(self, writer):
        writer.write(self.greeting.encode() + b"\n")
        while True:
            if lines := self._next_lines():
                writer.write(lines)
                await writer.drain()
                await asyncio.sleep(0)  # answers go first, for the last one may say why sending fails
            else:
                await self._woken.wait()
                self._woken.clear()

    async def _receive(self, reader):
        while (answer := await reader.readline()).endswith(b"\n"):
            self._answer(answer.decode().rstrip("\n"))
        raise ConnectionError("the daemon closed the connection")

    def _next_lines(self):
        with self._changed:
            if not self._is_greeted:
                return b""
            lines = list(itertools.islice(self._lines, self._sent, self._sent + 500))
            self._sent, self._is_waiting = self._sent + len(lines), not lines
            return b"".join(lines)

    def _answer(self, answer):
        with self._changed:
            match answer.split(" "):
                case ["E", "1", *words]:
                    raise Refused(" ".join(words))
                case ["H", _, _, *more] if not self._is_greeted:
                    stored, directory = (more + ["", ""])[:2]
                    self._greeted(int(stored) if self.name else 0, directory)
                case ["A", number] if self._is_greeted:
                    self._acknowledge(int(number))
                case ["N", number, reason] if self._is_greeted and 0 < int(number) - self._before <= self._sent:
                    self._tell(self._lines[int(number) - self._before - 1].decode().rstrip("\n"), reason)
                case _:
                    raise ValueError(f"strange answer: {answer!r}")

    def _tell(self, line, reason):
        try:
            self.rejected(line, reason)
        except BaseException as failure:
            self._end(failure)  # whatever its kind is, another connection does not help
            # asyncio lets some kinds through to the thread, past whoever has the connection.
            raise ConnectionAbortedError("the callback failed") from failure

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
        self._woken.set()

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
    waiting = len(client._lines)
    while not client.flush(5) and not client._ended:
        before, waiting = waiting, len(client._lines)
        if waiting == before:
            print(f"ringwise_log: {waiting} lines wait: {client.failure or 'no answer'}", file=sys.stderr)
    if not client.close():
        sys.exit(f"ringwise_log: {len(client._lines)} lines are not acknowledged: {client.failure}")
