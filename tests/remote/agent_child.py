"""A child that follows instructions in the model's bytes, instead of visualprof.remote.child.main."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main(argv: list[str]) -> int:
    work, stage = Path(argv[0]), argv[1].partition(":")[0]
    task = json.loads((work / "task.json").read_text())
    run = Run(work, work / "out", work / "events.jsonl", task)
    for word in Path(task["model"]).read_text().split():
        name, _, value = word.partition("=")
        if name.startswith("profile."):
            if stage == "measure":
                continue
            name = name.removeprefix("profile.")
        elif stage != "measure":
            continue
        status = getattr(run, name)(*([value] if value else []))
        if status is not None:
            return status
    run.tell("done")
    return 0


class Run:
    def __init__(self, work: Path, out: Path, events: Path, task: dict[str, Any]) -> None:
        self.work, self.out, self.events, self.task = work, out, events, task

    def tell(self, event: str, **fields: Any) -> None:
        with self.events.open("a") as file:
            file.write(json.dumps({"event": event, **fields}) + "\n")

    def phase(self, name: str, batch: str = "1") -> None:
        self.tell("phase", phase=name, batch=int(batch))

    def measure(self, seconds: str = "0.1") -> None:
        """A point that took so long."""
        self.tell("phase", phase="measuring", batch=4)
        start = time.time_ns()
        time.sleep(float(seconds))
        point = {"batch": 4, "n": 10, "load_ns": 5, "start_ns": start, "end_ns": time.time_ns()}
        point |= {"qps": 1.0, "samples_per_s": 4.0}
        with (self.out / "points.jsonl").open("a") as file:
            file.write(json.dumps(point) + "\n")
        self.tell("point", point=point)
        self.tell("progress", done=1, total=2)
        self.tell("effective", effective={"threads": "1"}, version="1.2.3")

    def unmeasured(self, batch: str) -> None:
        self.tell("warning", text=f"not measured: {batch}", not_measured=int(batch))

    def drift(self, file: str) -> None:
        """A point of a machine that is 10 ns slower at each one, whoever measures it. file: counts them."""
        counted = Path(file)
        count = counted.stat().st_size if counted.exists() else 0
        with counted.open("a") as out:
            out.write("x")
        took = 1000 + 10 * count
        point = {"batch": 1, "n": 700, "qps": 1e9 / took, "samples_per_s": 1e9 / took, "p50_ns": took, "trusted": [50]}
        point |= {"stable": True, "start_ns": time.time_ns(), "pid": os.getpid()}
        with (self.out / "points.jsonl").open("a") as lines:
            lines.write(json.dumps(point) + "\n")
        self.tell("point", point=point)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def hang(self) -> None:
        self.mark("hanging")
        time.sleep(600)

    def deaf(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def mark(self, name: str) -> None:
        """A file that says where it is, with its pid as the outside sees it."""
        (self.out / name).write_text(str(os.getpid()))

    def crash(self, name: str = "SIGSEGV") -> None:
        if name == "SIGSEGV":
            ctypes.string_at(0)
        os.kill(os.getpid(), getattr(signal, name))

    def exit(self, status: str) -> int:
        return int(status)

    def fail(self, reason: str) -> int:
        self.tell("failed", reason=reason, error=f"it is {reason}", hint="nothing helps")
        return 1

    def flood(self, megabytes: str) -> None:
        block = b"x" * 99 + b"\n"
        for _ in range(int(megabytes)):
            sys.stdout.buffer.write(block * 10_000)
        sys.stdout.flush()

    def eat(self, megabytes: str) -> None:
        self.food = [bytearray(os.urandom(1) * (1 << 20)) for _ in range(int(megabytes))]
        time.sleep(30)

    def write(self, megabytes: str) -> None:
        """Fills the disk, as a runtime would: the error is its own."""
        with (self.out / "big.bin").open("wb") as file:
            for _ in range(int(megabytes)):
                file.write(bytes(1 << 20))

    def family(self) -> None:
        """Descendants that leave the group and its session."""
        code = "import time; time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        subprocess.Popen([sys.executable, "-c", code])

    def file(self, name: str) -> None:
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")

    def big(self, megabytes: str) -> None:
        (self.out / "big.json").write_bytes(os.urandom(int(megabytes) << 20))

    def links(self, target: str) -> None:
        """Names that lead the agent elsewhere, if it follows them."""
        for name in ("monitor.jsonl", "status.json.part", "status.json", "secret.txt", "points.jsonl.part"):
            (self.out / name).symlink_to(target)
        os.mkfifo(self.out / "pipe")

    def finished(self) -> None:
        self.tell("done")

    def odd_profiles(self) -> None:
        for file in ("../../../../etc/passwd", "", 7, ["x"], "a\0b", "/etc/passwd", "x" * 5000):
            fields = {"file": file, "start_ns": "soon", "batch": {}, "runs": 1.5, "counters": "chrome_list"}
            self.tell("profile", **{"pass": []}, **fields)
            self.tell("profile", **{"pass": "p"}, **{**fields, "start_ns": 1})

    def nonsense(self) -> None:
        with self.events.open("ab") as file:
            file.write(
                b'\xff\xfe\n[1]\n{"event": 7}\n{"event":"point","point":3}\n{"event":"phase","phase":"x"}\n'
                + b"[" * 99999
            )
            file.write(b"\n")

    def deep(self, levels: str) -> None:
        """Folders deeper than a path can name, or Python can follow."""
        before = os.getcwd()
        os.chdir(self.out)
        for _ in range(int(levels)):
            os.mkdir("d")
            os.chdir("d")
        os.chdir(before)

    def many(self, count: str) -> None:
        for i in range(int(count)):
            (self.out / f"a{i:06}").touch()

    def odd_names(self) -> None:
        names = (b"a\nb", b"<img src=x onerror=alert(1)>", b"\x1b[31m", b"\xff\xfe", b"x" * 255, b" a", b"a.", b"-rf")
        for name in names:
            with open(os.fsencode(self.out) + b"/" + name, "wb") as file:
                file.write(b"x")

    def sparse(self, name: str) -> None:
        """Larger than any server takes, of nothing."""
        with (self.out / name).open("wb") as file:
            file.truncate(15 << 30)

    def odd_effective(self) -> None:
        deep: Any = "x"
        for _ in range(200):
            deep = [deep]
        effective = {
            "nan": float("nan"),
            "inf": float("inf"),
            "big": 10**400,
            "half": "\ud800",
            "deep": deep,
            "ok": "1",
        }
        self.tell("effective", effective=effective, version="\udfff1")
        self.tell("profile", **{"pass": "p\ud800", "file": "x", "batch": 10**400, "runs": float("nan"), "start_ns": 1})

    def long_line(self, megabytes: str) -> None:
        with self.events.open("ab") as file:
            for _ in range(int(megabytes)):
                file.write(b"x" * (1 << 20))
            file.write(b"\n")

    def forks(self, count: str) -> None:
        for _ in range(int(count)):
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
        time.sleep(60)

    def hoard(self, where: str) -> None:
        """Memory that no process has."""
        with open(where, "wb") as file:
            for _ in range(300):
                file.write(bytes(1 << 20))
        time.sleep(60)

    def probe(self, paths: str) -> None:
        """Report what a hostile model can read, reach and kill."""
        import socket

        values_by_name: dict[str, Any] = {}
        for path in paths.split(","):
            try:
                values_by_name[path] = len(os.listdir(path)) if os.path.isdir(path) else len(Path(path).read_bytes())
            except OSError as error:  # noqa: PERF203 - each alone
                values_by_name[path] = error.strerror
        values_by_name["pids"] = sorted(int(pid) for pid in os.listdir("/proc") if pid.isdecimal())
        values_by_name["parent"] = os.getppid()
        for kind, address in (("lo", ("127.0.0.1", 9)), ("out", ("192.0.2.1", 9))):
            with socket.socket() as link:
                link.settimeout(1)
                values_by_name[kind] = link.connect_ex(address)
        values_by_name["files"] = sorted(os.listdir("/proc/self/fd"))
        (self.out / "probe.json").write_text(json.dumps(values_by_name))

    def tell_profile(self, kind: str) -> None:
        start = time.time_ns()
        time.sleep(0.2)
        event = {"ph": "X", "name": "op", "ts": 1.0, "dur": 2.0, "pid": 7, "tid": 7}
        body: Any = [event] if kind == "chrome_list" else {"displayTimeUnit": "ms", "traceEvents": [event]}
        (self.out / "timeline.json").write_text(json.dumps(body))
        fields = {"file": "timeline.json", "start_ns": start, "batch": 1, "runs": 3, "counters": kind}
        self.tell("profile", **{"pass": "timeline"}, **fields)

    def environment(self) -> None:
        (self.out / "environment.json").write_text(json.dumps(dict(os.environ)))

    def look(self, path: str) -> None:
        """Report what the child sees of the machine."""
        seen = {
            "path": os.path.exists(path),
            "network": sorted(os.listdir("/sys/class/net")) if os.path.isdir("/sys/class/net") else [],
        }
        try:
            Path(self.task["model"]).write_text("changed")
            seen["writes_model"] = True
        except OSError:
            seen["writes_model"] = False
        (self.out / "seen.json").write_text(json.dumps(seen))
