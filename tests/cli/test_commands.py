"""The command line."""

from __future__ import annotations

import csv
import ctypes
import io
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
import urllib.request
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests import models
from visualprof import __version__
from visualprof.cli import commands, main
from visualprof.cli.demo import check
from visualprof.cli.serve import _inside_its_folder
from visualprof.reader import native

ROOT = Path(__file__).parents[2]


def profile(operators: int = 2, name: str = "op") -> str:
    common = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1}
    events = [common | {"name": f"{name}{i}", "ts": 2000 * i, "dur": 1500} for i in range(operators)]
    return json.dumps({"schemaVersion": 1, "traceEvents": events})


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "rank0.json"
    path.parent.mkdir()
    path.write_text(profile())
    return path


def run(*arguments: object, capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    return status, out, err


@pytest.mark.parametrize("command", [(), ("view",)])
def test_the_version_says_whether_the_native_reader_is_in_use(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    monkeypatch.setenv(native.SWITCH_VARIABLE, "0")
    with pytest.raises(SystemExit) as ended:
        main([*command, "--version"])
    first, second = capfd.readouterr().out.splitlines()
    assert (ended.value.code, first) == (0, f"visualprof {__version__}")
    assert second.startswith("native reader: no: VISUALPROF_NATIVE=0; ")
    monkeypatch.setattr(native, "library", lambda: ctypes.CDLL(None))
    assert native.describe_state() == f"yes ({platform.machine()})"


def test_json_is_the_views_answer(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run("view", "operator", trace, "--format", "json", capfd=capfd)
    assert status == 0
    body = json.loads(out)
    assert body["columns"]["name"] == ["op0", "op1"]
    assert body["columns"]["host_total_ns"] == [1_500_000, 1_500_000]
    assert body["total_rows"] == 2


def test_csv_has_a_header_and_rows(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("view", "operator", trace, "--format", "csv", capfd=capfd)
    assert [row["name"] for row in csv.DictReader(io.StringIO(out))] == ["op0", "op1"]


def test_a_table_is_aligned_with_units(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("view", "operator", trace, capfd=capfd)
    assert "1.50 ms" in out
    assert "host total" in out.splitlines()[0]
    assert re.search(r"^op0 ", out, re.MULTILINE)
    assert len({line.index("1.50 ms") for line in out.splitlines() if "1.50 ms" in line}) == 1


def test_a_long_table_shows_thirty_rows(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.json"
    path.write_text(profile(operators=100))
    _, out, _ = run("view", "operator", path, capfd=capfd)
    assert sum(line.startswith("op") for line in out.splitlines()) == 30
    assert "70 more" in out


def test_names_cannot_steer_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.json"
    path.write_text(profile(operators=1, name="\x1b[31mred\r\n"))
    _, out, _ = run("view", "operator", path, capfd=capfd)
    assert "\x1b" not in out
    assert "red" in out


def test_long_names_are_cut_in_the_middle(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.json"
    path.write_text(profile(operators=1, name="start" + "x" * 500 + "end"))
    _, out, _ = run("view", "operator", path, capfd=capfd)
    assert re.search(r"^startx+…x+end0", out, re.MULTILINE)


def test_the_overview_is_readable(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run("view", "overview", trace, capfd=capfd)
    assert status == 0
    assert "STEPS" in out
    assert "ENVIRONMENT" in out


def test_help_lists_each_command_with_the_first_line_of_its_docstring(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = dict(re.findall(r"^  (\S+) +(\S.*)$", capfd.readouterr().out.partition("commands:\n")[2], re.MULTILINE))
    modules = {name: import_module(f"visualprof.cli.{name.replace('-', '_')}") for name in commands()}
    assert listed == {name: (module.__doc__ or "").splitlines()[0] for name, module in modules.items()}


def test_parameters_reach_the_view(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("view", "operator", trace, "--param", "group=shape", "--format", "json", capfd=capfd)
    assert "input_shapes" in json.loads(out)["columns"]


def test_a_folder_of_one_run_can_be_given(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (trace.parent / "rank1.json").write_text(profile(operators=5))
    for options, rows in (((), 2), (("--worker", "rank1"), 5), (("--worker", "rank1", "--span", "1"), 5)):
        status, out, _ = run("view", "operator", trace.parent, *options, "--format", "json", capfd=capfd)
        assert (status, json.loads(out)["total_rows"]) == (0, rows)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nope", "rank0.json"], "overview"),
        (["operator", "gone.json"], "gone.json"),
        (["operator", "rank0.json", "--param", "group=nope"], "group"),
        (["operator", "rank0.json", "--param", "nope=1"], "parameters:"),
        (["operator", "rank0.json", "--param", "group"], "name=value"),
        (["operator", ".", "--worker", "nope"], "rank0"),
        (["operator", "empty.json"], "empty"),
        (["runtime", "rank0.json"], "no data"),
        (["operator", "strangers"], "notes.json"),
        (["operator", "many"], "holds 2 runs"),
    ],
)
def test_errors_give_a_hint_and_exit_with_2(
    trace: Path, arguments: list[str], text: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"empty.json": "", "strangers/notes.json": "{}", "many/a.json": profile(), "many/b.json": profile()}
    for name, content in files.items():
        if arguments[1] == name.partition("/")[0]:
            (trace.parent / name).parent.mkdir(exist_ok=True)
            (trace.parent / name).write_text(content)
    monkeypatch.chdir(trace.parent)
    status, out, err = run("view", *arguments, capfd=capfd)
    assert (status, out) == (2, "")
    assert text in err


@pytest.mark.slow
def test_two_models_are_compared(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    for name, nodes in (("a", ["conv", "relu"]), ("b", ["conv"])):
        models.save(models.chain(nodes), tmp_path / f"{name}.onnx")
    paths = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    status, out, _ = run("compare", *paths, capfd=capfd)
    assert status == 0
    assert "removed: 1" in out
    rows = list(
        csv.DictReader(io.StringIO(run("compare", *paths, "--table", "changes", "--format", "csv", capfd=capfd)[1]))
    )
    assert [row["name"] for row in rows] == ["relu"]
    kinds = json.loads(run("compare", *paths, "--format", "json", capfd=capfd)[1])["summary"]["columns"]
    assert (kinds["change"], kinds["nodes"]) == (["removed"], [1])
    assert run("compare", paths[0], tmp_path / "none.onnx", capfd=capfd)[::2] == (
        2,
        "visualprof: none.onnx: No such file or directory\nHint: Is the file still there and readable?\n",
    )


@pytest.mark.parametrize(
    ("repository", "page"),
    [("", "docs/formats.md"), ("https://forge.example/v/", "https://forge.example/v/blob/main/docs/formats.md")],
)
def test_an_error_names_the_page_that_explains_it(
    repository: str, page: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUALPROF_REPOSITORY", repository)
    (tmp_path / "notes.json").write_text('{"a": 1}')
    status, _, err = run("view", "overview", tmp_path / "notes.json", capfd=capfd)
    assert status == 2
    assert err.endswith(f"\nSee: {page}\n")


def test_the_commands_are_the_files_of_the_folder() -> None:
    assert {"serve", "view", "demo"} <= set(commands())
    assert not any(name.startswith("_") for name in commands())


def test_help_lists_the_commands(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    out = capfd.readouterr().out
    assert all(name in out for name in commands())
    assert "--logdir" in out


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], str]]:
    """Return what would be served: the log directories and the first page."""
    calls: list[tuple[list[str], str]] = []

    def note(paths: list[str], *_: object, page: str) -> int:
        calls.append((paths, page))
        return 0

    monkeypatch.setattr("visualprof.cli.serve.serve", note)
    return calls


def test_a_folder_needs_no_option(trace: Path, served: list[tuple[list[str], str]]) -> None:
    folder = str(trace.parent)
    for words in ([folder], ["--logdir", folder], ["--port", "0", folder], [folder, "--port", "0"], ["serve", folder]):
        assert main(words) == 0
    assert served == [([folder], "")] * 5
    assert main([folder, folder, "--logdir", "."]) == 0
    assert served[-1] == ([folder, folder, "."], "")


def test_a_file_opens_its_folder_at_the_run_or_model(
    trace: Path, served: list[tuple[list[str], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    monkeypatch.chdir(trace.parent)
    models.save(models.calling(2, 2), Path("a&b.onnx"))
    Path("bert_rank3.json").write_text(profile())
    for file in (trace, Path("bert_rank3.json"), Path("a&b.onnx")):
        assert main([str(file)]) == 0
    pages = ["#/overview?run=.&worker=rank0", "#/overview?run=bert&worker=bert_rank3", "#/graph?model=a%26b.onnx"]
    assert served == [([str(trace.parent)], pages[0]), (["."], pages[1]), (["."], pages[2])]
    Path("notes.txt").write_text("bought milk")
    assert main(["notes.txt"]) == 2


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ([], ["visualprof demo", "visualprof runs/", "--help"]),
        (["--read-only"], ["visualprof demo"]),
        (["serv"], ["Did you mean `visualprof serve`?", "demo"]),
        (["veiw", "overview", "x.json", "--format", "json"], ["Did you mean `visualprof view`?"]),
        (["runs"], ["no folder or file 'runs'", "Did you mean run?"]),
        (["--logdir", "nope"], ["'nope'", "--create", "visualprof demo"]),
        (["rank0.json/x", "--create"], ["Cannot make"]),
    ],
)
def test_unreadable_paths_are_reported_with_a_hint(
    words: list[str], texts: list[str], trace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(trace.parent if "--create" in words else trace.parent.parent)
    status, out, err = run(*words, capfd=capfd)
    assert (status, out) == (2, "")
    assert all(text in err for text in texts)
    assert len(err.splitlines()) <= 6


def test_a_missing_folder_is_made_when_asked(
    tmp_path: Path, served: list[tuple[list[str], str]], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "runs"
    status, _, err = run(folder, "--create", capfd=capfd)
    assert (status, served) == (0, [([str(folder)], "")])
    assert folder.is_dir()
    assert "waiting for the first profile" in err


def python(*code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *code], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)


def modules_after(code: str) -> list[str]:
    out = python("-c", f"import sys; from visualprof.cli import main\n{code}\nprint(*sys.modules)").stdout
    return out.splitlines()[-1].split()


def test_help_imports_nothing_unnecessary() -> None:
    loaded = modules_after("try: main(['--help'])\nexcept SystemExit: pass")
    unnecessary = {"numpy", "flask", "pandas", "msgspec", "watchdog", "visualprof.remote.protocol"}
    assert not unnecessary & set(loaded)


# `import numpy` loads these, and more, itself before numpy 2.
NUMPY_EXTRAS = {"numpy.ma"} if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else set[str]()
HEAVY = {"flask", "waitress", "watchdog", "sqlalchemy", "alembic", "onnx", "psutil", "platformdirs", "ssl", "pandas"}


@pytest.mark.parametrize("name", ["overview", "operator"])
def test_a_view_loads_no_other_view_and_nothing_that_only_others_need(trace: Path, name: str) -> None:
    loaded = modules_after(f"main(['view', {name!r}, {str(trace)!r}])")
    assert not {*HEAVY, *NUMPY_EXTRAS, "logging", "tempfile", "multiprocessing"} & set(loaded)
    others = ("visualprof.server", "visualprof.remote", "visualprof.reader.models", "visualprof.reader.logdir")
    assert not [m for m in loaded if m.startswith(others)]
    assert {m for m in loaded if re.fullmatch(r"visualprof\.views\.\w+", m)} == {
        f"visualprof.views.{m}" for m in ("answers", "measure", name)
    }


def test_sorting_columns_does_not_import_numpy_extras(tmp_path: Path) -> None:
    """`np.unique` of values alone asks whether they are masked, and loads what they would be (9 ms)."""
    names = [{"ph": "M", "name": "thread_name", "pid": 1, "tid": t, "args": {"name": f"t{t}"}} for t in range(40)]
    memory = [
        {
            "ph": "i",
            "cat": "cpu_instant_event",
            "name": "[memory]",
            "pid": 1,
            "tid": 1,
            "ts": i,
            "args": {"Addr": i // 2, "Bytes": 1 - i % 2 * 2, "Device Type": 0, "Device Id": 0},
        }
        for i in range(3000)
    ]
    ops = [{"ph": "X", "cat": "cpu_op", "name": f"op{i % 9}", "pid": 1, "tid": 1, "ts": i, "dur": 1} for i in range(99)]
    path = tmp_path / "memory.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*names, *memory, *ops, *names]}))
    loaded = modules_after(f"main(['view', 'all', {str(path)!r}, '--format', 'json'])")
    assert "visualprof.views.memory" in loaded
    assert not {*NUMPY_EXTRAS, "visualprof.reader.logdir.scan"} & set(loaded)


def test_a_cached_file_is_opened_without_importing_its_format(trace: Path) -> None:
    loaded = modules_after(f"main(['view', 'overview', {str(trace)!r}]); main(['view', 'overview', {str(trace)!r}])")
    assert "visualprof.reader.formats.kineto" in loaded
    loaded = modules_after(f"main(['view', 'overview', {str(trace)!r}])")
    assert not [m for m in loaded if m.startswith(("visualprof.reader.formats.", "visualprof.reader.chrome."))]


def test_the_version_is_shown_without_loading_other_commands() -> None:
    loaded = modules_after("try: main(['--version'])\nexcept SystemExit: pass")
    assert {m for m in loaded if m.startswith("visualprof.cli.")} == {"visualprof.cli._paths", "visualprof.cli.serve"}
    assert not {*HEAVY, "numpy", "msgspec"} & set(loaded)


@pytest.mark.slow
def test_a_server_loads_the_libraries_of_the_database_with_the_queue_only(tmp_path: Path) -> None:
    loaded = modules_after(
        "from visualprof.server.serve import Server\n"
        f"with Server([{str(tmp_path)!r}], 0) as server:\n assert not server.needs_first_user; server.start()"
    )
    assert "visualprof.server.api.jobs" in loaded
    assert not {"sqlalchemy", "alembic", "sqlite3"} & set(loaded)


@pytest.mark.parametrize("given", ["", "3"])
def test_processes_of_a_server_may_use_threads(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)  # a command that ran in this process may have set it
    if given:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    code = "from visualprof.cli._start import imports\nimport gc, os\nwith imports():\n"
    code += " import numpy; print(os.environ['OPENBLAS_NUM_THREADS'], gc.isenabled())\n"
    code += "print(os.environ.get('OPENBLAS_NUM_THREADS'), gc.isenabled(), gc.get_freeze_count() > 0)"
    out = python("-c", code).stdout.splitlines()
    assert out == [f"{given or 1} False", f"{given or None} True True"]


def test_the_package_runs_as_a_module(trace: Path) -> None:
    done = python("-m", "visualprof", "view", "operator", str(trace), "--format", "csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("name,")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_server_starts_without_a_command_and_stops_on_a_signal(trace: Path, number: int) -> None:
    command = [sys.executable, "-m", "visualprof", "--logdir", str(trace.parent), "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        try:
            assert process.stdout
            line = process.stdout.readline()
            url = re.search(r"http://\S+/", line)
            assert url, line
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with direct.open(f"{url[0]}api/v1/status", timeout=10) as response:
                assert json.loads(response.read())["logdirs"] == [str(trace.parent)]
            time.sleep(0.3)
            process.send_signal(number)
            assert process.wait(timeout=15) == 0
        finally:
            process.kill()


@pytest.mark.slow
def test_the_check_of_the_demo_passes_on_good_runs_and_fails_on_bad(
    trace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert check(trace.parent, None) == 0
    assert "1 profiles" in capfd.readouterr().out
    (trace.parent / "notes.json").write_text("{}")
    assert check(trace.parent, None) == 1
    assert "notes.json" in capfd.readouterr().err


@pytest.mark.slow
def test_a_check_without_runs_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visualprof.cli.demo._PATIENCE_S", 1)
    (tmp_path / "none").mkdir()
    assert check(tmp_path / "none", None) == 1


def test_a_model_whose_size_explodes_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    bomb = models.save(models.calling(10, 10), tmp_path / "laughs.onnx")
    status, out, err = run("view", "graph", bomb, capfd=capfd)
    assert (status, out) == (2, "")
    assert "laughs.onnx: with its functions written out the model has 11,111,111,111 nodes" in err
    assert "Traceback" not in err


def test_links_out_of_the_log_directory_are_followed_only_without_accounts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run("--logdir", tmp_path, "--accounts", "--follow-links", capfd=capfd)
    assert status == 2
    assert "--follow-links" in err


def test_a_linked_file_is_opened_at_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.json").write_text("{}")
    (tmp_path / "latest.json").symlink_to(tmp_path / "real" / "a.json")
    assert _inside_its_folder(tmp_path / "latest.json") == tmp_path / "latest.json"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link.json").symlink_to(tmp_path / "real" / "a.json")
    assert _inside_its_folder(tmp_path / "other" / "link.json") == tmp_path / "real" / "a.json"
