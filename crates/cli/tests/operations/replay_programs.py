"""Records programs and replays them, each in turn, and compares the I/O time of the replay with the program's.

    python3 replay_programs.py target/release/ringwise [--dir DIRECTORY] [ROUNDS [NAME...]]

It has the programs of docs/notes/lab/replay.md, on ext4 over a loop device in memory, which takes 4 GB and root, or in a
directory of a disk. It needs fio, sqlite3, tar, ripgrep, nginx with curl, and PostgreSQL with pgbench; those that are
not there are left out.
"""

import argparse
import contextlib
import glob
import os
import pathlib
import pwd
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

PORT = 8199
NGINX = """daemon off; worker_processes 1; user root; pid {place}/nginx.pid; error_log /dev/null;
events {{ worker_connections 64; }}
http {{ access_log off; sendfile off; server {{ listen 127.0.0.1:{port}; root {place}/www; }} }}
"""
FIO = ["fio", "--name=j", "--output=/dev/null"]
READS = FIO + ["--filename=f1", "--size=128m", "--rw=randread", "--bs=4k", "--direct=1"]
WRITES = FIO + ["--filename=f2", "--size=32m", "--rw=write", "--bs=16k", "--fsync=8", "--ioengine=psync"]


def run(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)


def drop_cache():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def warm(directory):
    for path in directory.rglob("*"):
        if path.is_file():
            path.read_bytes()


class Bench:
    def __init__(self, ringwise, place, trace):
        self.ringwise, self.place, self.trace = ringwise, place, trace
        self.tree, self.www, self.replays = place / "tree", place / "www", place / "replay"
        self.replays.mkdir()
        shutil.copytree("/usr/include", self.tree, symlinks=True, ignore_dangling_symlinks=True)
        self.www.mkdir()
        for number in range(1000):
            (self.www / f"f{number}").write_bytes(os.urandom(6000))
        urls = (f'url = "http://127.0.0.1:{PORT}/f{number}"\noutput = "/dev/null"\n' for number in range(1000))
        (place / "urls").write_text("".join(urls) * 4)
        (place / "nginx.conf").write_text(NGINX.format(place=place, port=PORT))
        (place / "script.sql").write_text("\n".join(sql()))
        if shutil.which("fio"):
            # Otherwise the process that lays them out is in the trace too, and others depend on it.
            run(*READS, "--create_only=1", cwd=place)
            # fio allocates a file for writes without writing it, and a trace does not say where a file has data.
            run(*WRITES, cwd=place)
        place.chmod(0o755)

    def record(self, *command, shell=False):
        command = ["sh", "-c", command[0]] if shell else command
        own = [self.ringwise, "lab", "record", "--out", self.trace, "--", *command]
        told = subprocess.run(own, cwd=self.place, capture_output=True, text=True)
        if told.returncode != 0:
            sys.exit(f"{' '.join(command)}: {told.stderr}")

    @contextlib.contextmanager
    def recorded(self, *command):
        """Records a server while the block runs. The block ends the server."""
        own = [self.ringwise, "lab", "record", "--out", self.trace, "--", *command]
        with subprocess.Popen(own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as recorder:
            time.sleep(1.5)
            yield
            recorder.wait(60)

    def replay(self, repeats):
        """The I/O time of the replay by the trace's."""
        flags = ["--engines", "recorded", "--repeats", str(repeats), "--recorder", "--dir", self.replays]
        told = subprocess.run([self.ringwise, "lab", "replay", self.trace, *flags], capture_output=True, text=True)
        text = " ".join((told.stdout + told.stderr).split())
        found = re.search(r"fidelity: .*?(\d+\.\d+) \[", text)
        if not found:
            sys.exit(f"the replay has no figure: {text[-600:]}")
        return float(found[1])


def sql():
    yield "create table t(a integer primary key, b text);"
    yield "begin;"
    for row in range(20_000):
        yield f"insert into t values({row}, 'row number {row} with some text in it');"
    yield "commit;"
    for row in range(100):
        yield f"insert into t values({20_000 + row}, 'x{row}');"
        yield f"select count(*) from t where a > {100 * row} and a < {100 * row + 50};"


def sqlite(bench):
    (bench.place / "d.db").unlink(missing_ok=True)
    bench.record("exec sqlite3 d.db < script.sql > /dev/null", shell=True)


def tar(bench, prepare):
    (bench.place / "out.tar").unlink(missing_ok=True)
    prepare()
    bench.record("tar", "cf", "out.tar", "tree")


def ripgrep(bench):
    warm(bench.tree)
    bench.record("rg -c --no-ignore zzz tree || true", shell=True)


def nginx(bench, prepare):
    prepare()
    own = ["nginx", "-c", str(bench.place / "nginx.conf")]
    with bench.recorded(*own):
        run("curl", "-s", "-K", bench.place / "urls")
        run(*own, "-s", "quit")


def pgbench(bench):
    programs = pathlib.Path(max(glob.glob("/usr/lib/postgresql/*/bin")))
    data, user = bench.place / "pg", pwd.getpwnam("postgres")
    as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/tmp"}
    server = [str(programs / "postgres"), "-D", str(data), "-k", "/tmp", "-c", "listen_addresses="]
    drop = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]

    def end():
        os.kill(int((data / "postmaster.pid").read_text().split()[0]), signal.SIGINT)

    if not data.exists():
        data.mkdir()
        os.chown(data, user.pw_uid, user.pw_gid)
        run(programs / "initdb", "-D", data, **as_user)
        with subprocess.Popen(drop + server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/tmp"):
            time.sleep(2)
            run(programs / "pgbench", "-h", "/tmp", "-i", "-q", "-s", "5", "postgres", **as_user)
            end()
    with bench.recorded(*drop, *server):
        run(programs / "pgbench", "-h", "/tmp", "-c", "2", "-T", "5", "postgres", **as_user)
        end()


# Each program: what has to be installed, and how it is recorded.
PROGRAMS = {
    "fio-psync": ("fio", lambda it: it.record(*READS, "--ioengine=psync", "--io_size=40m")),
    "fio-write": ("fio", lambda it: it.record(*WRITES)),
    "fio-uring": ("fio", lambda it: it.record(*READS, "--ioengine=io_uring", "--iodepth=16")),
    "sqlite3": ("sqlite3", sqlite),
    "tar": ("tar", lambda it: tar(it, lambda: warm(it.tree))),
    "tar-cold": ("tar", lambda it: tar(it, drop_cache)),
    "rg": ("rg", ripgrep),
    "nginx": ("nginx", lambda it: nginx(it, lambda: warm(it.www))),
    "nginx-cold": ("nginx", lambda it: nginx(it, drop_cache)),
    "pgbench": ("/usr/lib/postgresql/*/bin/pgbench", pgbench),
}


@contextlib.contextmanager
def disk():
    """A file system in memory, and a place for the trace beside it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        image, place = pathlib.Path(memory, "disk"), pathlib.Path(memory, "place")
        place.mkdir()
        os.chmod(memory, 0o755)  # PostgreSQL runs as another user
        with open(image, "wb") as file:
            file.truncate(4 << 30)
        run("mkfs.ext4", "-q", "-F", image)
        run("mount", "-o", "loop", image, place)
        try:
            yield place, pathlib.Path(memory, "trace")
        finally:
            run("umount", "-l", place)


@contextlib.contextmanager
def below(directory):
    """The same in a directory."""
    with tempfile.TemporaryDirectory(dir=directory) as made:
        place = pathlib.Path(made, "place")
        place.mkdir()
        os.chmod(made, 0o755)
        yield place, pathlib.Path(made, "trace")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ringwise", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--dir")
    parser.add_argument("rounds", type=int, nargs="?", default=5)
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    ringwise, rounds, names = options.ringwise, options.rounds, options.names or list(PROGRAMS)
    there = [name for name in names if shutil.which(PROGRAMS[name][0]) or glob.glob(PROGRAMS[name][0])]
    ratios = {name: [] for name in there}
    with below(options.dir) if options.dir else disk() as (place, trace):
        bench = Bench(ringwise, place, trace)
        for _ in range(rounds):
            for name in there:
                trace.unlink(missing_ok=True)
                PROGRAMS[name][1](bench)
                ratios[name].append(bench.replay(5 if name == "fio-uring" else 3))
                print(name, ratios[name][-1], file=sys.stderr, flush=True)
    print("program      median  within 10 %  rounds")
    for name, all_rounds in ratios.items():
        median = statistics.median(all_rounds)
        told = "yes" if 0.9 <= median <= 1.1 else "no"
        print(f"{name:<12} {median:>6.2f}  {told:<11}  {', '.join(f'{ratio:.2f}' for ratio in all_rounds)}")
    for name in names:
        if name not in there:
            print(f"{name:<12} not installed")


main()
