"""The sandbox of tasks: what a hostile model could change from inside, even if the agent runs as root."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from visualprof.cli import main
from visualprof.remote.agent import command
from visualprof.remote.agent.machine import sandbox
from visualprof.remote.agent.machine.sandbox import Sandbox

#: Tries to write everything that it sees, then to mount and to make namespaces.
PROBE = r"""
import json, os, stat, subprocess
writable = []
for root, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if not os.path.islink(os.path.join(root, name))]
    for name in [*files, *folders]:
        path = os.path.join(root, name)
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode):
                os.close(os.open(path, os.O_WRONLY))
            elif not (stat.S_ISDIR(mode) and os.access(path, os.W_OK)):
                continue
        except OSError:
            continue
        writable.append(path)
run = lambda *words: subprocess.run(words, capture_output=True).returncode
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps({
    "writable": writable,
    "uid_map": open("/proc/self/uid_map").read().split(),
    "capabilities": [status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "mount": run("mount", "-t", "proc", "proc", "/tmp"),
    "sysfs": run("mount", "-t", "sysfs", "sysfs", "/tmp"),
    "userns": run("unshare", "--user", "--map-root-user", "true"),
    "mountns": run("unshare", "--mount", "true"),
}))
"""


@pytest.mark.skipif(bool(sandbox.bubblewrap_problem()), reason="needs bubblewrap")
def test_nothing_but_the_work_folder_is_writable_inside(tmp_path: Path) -> None:
    python = Path("/usr/bin/python3")
    if not python.exists():
        pytest.skip("needs the system's Python")
    words, environment = Sandbox(tmp_path, python).command(2, "-I", "-c", PROBE)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    private = ("/tmp", "/dev", "/job/work")
    outside = [path for path in answer["writable"] if not path.startswith((*private, "/proc/"))]
    # Of /proc only what belongs to the processes inside, and pressure monitors of one's own.
    shared = [p for p in answer["writable"] if p.startswith("/proc/") and not p.split("/")[2].isdigit()]
    assert (outside, [path for path in shared if not path.startswith("/proc/pressure/")]) == ([], [])
    assert answer["uid_map"][0] == "65534", "no root inside"
    assert set(answer["capabilities"]) == {"0000000000000000"}
    assert 0 not in [answer[name] for name in ("mount", "sysfs", "mountns")]
    if sandbox._disable_userns_option():
        assert answer["userns"] != 0


#: Prints what a process can learn about the names of its folders.
NAMES = r"""
import json, os, sys
names = {"cwd": os.getcwd(), "argv": sys.argv, "environment": dict(os.environ), "root": sorted(os.listdir("/")),
         "task": json.load(open("/job/work/task.json")), "files": os.listdir("/job/files")}
json.dump(names, open("/job/work/out.json", "w"))
for path in ("/job/files/new", "/job/work/task.json"):
    try:
        open(path, "w")
        raise SystemExit(f"{path} can be written")
    except OSError:
        pass
print(json.dumps(names))
"""


@pytest.mark.skipif(bool(sandbox.bubblewrap_problem()), reason="needs bubblewrap")
def test_folders_have_other_names_inside_than_outside(tmp_path: Path) -> None:
    python = Path("/usr/bin/python3")
    if not python.exists():
        pytest.skip("needs the system's Python")
    work, files, inside = tmp_path / "secret" / "box", tmp_path / "secret" / "files", tmp_path / "secret" / "task.json"
    for folder in (work, files):
        folder.mkdir(parents=True)
    (files / "model.onnx").touch()
    (work / "task.json").touch()
    box = Sandbox(work, python, files=files, replaced=((inside, work / "task.json"),), mark=str(tmp_path / "secret"))
    task = {
        "model": str(files / "model.onnx"),
        "inputs": {"x": str(files / "x.npy")},
        "other": [str(tmp_path), 3, None],
    }
    inside.write_text(json.dumps(box.inside(task)))
    words, environment = box.command(2, "-I", "-c", NAMES, str(files / "code.pyz"), f"{work}x")
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stdout)
    assert (names["cwd"], names["environment"]["HOME"], names["files"]) == ("/job/work", "/job/work", ["model.onnx"])
    assert names["argv"][1:] == ["/job/files/code.pyz", f"{work}x"], "only paths below a folder have other names"
    assert names["task"] == {
        "model": "/job/files/model.onnx",
        "inputs": {"x": "/job/files/x.npy"},
        "other": [str(tmp_path), 3, None],
    }
    assert str(tmp_path) not in json.dumps([names["environment"], names["root"]])
    assert (work / "out.json").is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="agents need Linux")
def test_an_agent_runs_as_root_only_if_allowed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv(command.ALLOW_ROOT_VARIABLE)
    monkeypatch.setattr(command, "runs_as_root", lambda: True)
    assert main(["agent", "--server", "http://127.0.0.1:1", "--token", "t"]) == 2
    assert main(["--with-agent", "--port", "0", str(tmp_path)]) == 2
    error = capfd.readouterr().err
    assert error.count("run as root") == 2
    assert error.count("--allow-root in a disposable container") == 2
