"""Measures the sample model and writes what the demo ships of it: `nice -n -19 python -m tests.sample_job`.

A job like any other, of the real queue and agent; only its id and the names of machine and folders are replaced.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.conftest import SAMPLES
from tests.server_settings import server_settings
from visualprof.cli._server import Server as Client
from visualprof.server.serve import Server

MODEL = SAMPLES / "models" / "resnet10.onnx"
NAME = "sample"  # of job, agent and machine
SPECS = [
    {"backends": ["onnxruntime"], "threads": ["1", "2"]},
    {"backends": ["openvino"], "threads": ["2"], "precisions": ["f32", "bf16"]},
]
KEPT = ("job.json", "env.json", "status.json", "points.jsonl", "latencies.bin", "monitor.jsonl")


def main(out: Path) -> None:
    """Writes `<out>/resnet10-sample`: a folder a spec, and the queue's rows as SQL."""
    with tempfile.TemporaryDirectory() as scratch:
        runs, data = Path(scratch) / "runs", Path(scratch) / "data"
        runs.mkdir()
        with Server([runs], 0, server_settings(data=data)) as server:
            server.start()
            job = measured(server.url, server.job_service.registration_token, Path(scratch) / "agent")
        if job["state"] != "succeeded":
            sys.exit(json.dumps(job["tasks"], indent=1))
        (result_folder,) = runs.glob(f"*-{job['id']}")
        target = out / result_folder.name.replace(job["id"], NAME)
        shutil.rmtree(target, ignore_errors=True)
        names = {job["id"]: NAME, scratch: "/home/sample", sys.prefix: "/home/sample/.venv", os.uname().nodename: NAME}
        for folder in sorted(result_folder.iterdir()):
            write_result(folder, target / folder.name, names)
        rows = "\n".join(["BEGIN;", *dump(data / "jobs.sqlite"), "COMMIT;", ""])
        (target / "jobs.sql").write_text(renamed(rows, names))


def measured(url: str, token: str, state: Path) -> dict[str, Any]:
    """The job, once it is over."""
    command = [sys.executable, "-m", "visualprof", "agent", "--server", url, "--name", NAME, "--public", "--tags", NAME]
    agent = subprocess.Popen([*command, "--state", str(state)], env={**os.environ, "VISUALPROF_AGENT_TOKEN": token})
    client = Client(url)
    try:
        while not any(row["capabilities"]["runtimes"] for row in client.get("agents")["agents"]):
            time.sleep(0.2)
        model = client.upload(MODEL, lambda done, size: None)
        draft = {"model": model["blob"], "key": NAME, "name": "ResNet-10", "sizes": "1:32", "specs": SPECS}
        drafted = client.post("jobs/draft", draft | {"measure": {"min_s": "1"}})
        job = client.post("jobs", drafted["request"] | {"sample": True})["job"]
        while job["state"] not in ("succeeded", "failed", "cancelled"):
            time.sleep(1)
            job = client.get(f"jobs/{job['id']}")["job"]
        return job
    finally:
        agent.terminate()
        agent.wait()


def renamed(text: str, names: dict[str, str]) -> str:
    """Without what tells whose machine it was; the token of the agent opens nothing any more."""
    for name, instead in names.items():
        text = text.replace(name, instead)
    return re.sub(r"\b[0-9a-f]{64}\b(?=',1,0,)", "0" * 64, text)


def write_result(folder: Path, target: Path, names: dict[str, str]) -> None:
    """A result without the model, which lies among the samples, and with its profiles packed."""
    target.mkdir(parents=True)
    profiles = {entry["file"] for entry in json.loads((folder / "status.json").read_text())["profiles"]}
    packed = {name: f"{name}.gz" for name in profiles}
    for name in (*KEPT, *sorted(profiles)):
        if name == "latencies.bin":
            shutil.copyfile(folder / name, target / name)
        elif name in packed:
            content = renamed((folder / name).read_text(), names).encode()
            (target / packed[name]).write_bytes(gzip.compress(content, 9, mtime=0))
        else:
            (target / name).write_text(renamed((folder / name).read_text(), names | packed))


def dump(path: Path) -> Iterator[str]:
    """The database as SQL."""
    with closing(sqlite3.connect(path)) as database:
        yield from (line for line in database.iterdump() if not line.startswith(("BEGIN", "COMMIT")))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES)
