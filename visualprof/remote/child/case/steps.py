"""The stages `case` and `case-check`: the seven steps of a benchmark case, or what they would lack.

`task.json` has a `CaseTask` under "case". A step leaves a record in `out/steps/`, with the sha256 of its files: a later
run of the same case and configuration keeps what it finds whole, and goes on behind it. `out/case.json` is the result
as far as it is known, written anew after each step.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from visualprof.messages import msg
from visualprof.remote.cases import CASE_SCHEMA, STEPS, Engine, Vendor, all_vendors
from visualprof.remote.cases.layers import MergedConfig, as_json, merge, skipped_steps
from visualprof.remote.child.case import summary
from visualprof.remote.child.case.code import CaseCode, find_engine
from visualprof.remote.child.case.forward import RoundTimer, TimedData, TimedEngine, case_pass, model_call, run_rounds
from visualprof.remote.child.case.task import check_requirements, read_case_task
from visualprof.remote.child.failures import to_failure
from visualprof.remote.child.host import LoadMeter
from visualprof.remote.protocol import TaskFailure

Tell = Callable[..., None]
PHASES = {"validation": "measuring", "export": "converting", "compile": "converting", "inference": "measuring"}
RECORDED_STEPS = ("validation", "export", "compile", "inference")
# What whoever watches the child adds; it stays where nothing is measured anew.
OBSERVED_KEYS = ("memory_used_bytes", "utilization", "power_w", "temperature_c", "clock_mhz", "energy_j_per_sample",
            "throttled")  # fmt: skip
STATE_FILES = ("case.json", "steps", "points.jsonl")  # of the folder of the result, none of a step's files


def check(work: Path, tell: Tell) -> None:
    """Tell what is missing and what is odd, and runs nothing of the case."""
    steps = CaseSteps(work, tell)
    problem, hint, reason = "", "", ""
    try:
        steps.configure()
        steps.require()
    except TaskFailure as failure:
        problem, hint, reason = failure.error, failure.hint, failure.reason
    known = steps.merged.settings.values() if steps.merged else ()
    settings = [f"{one.key} = {as_json(one.value)} ({one.origin})" for one in known]
    changes = steps.merged.changes if steps.merged else []
    told = {
        "missing": problem,
        "hint": hint,
        "reason": reason,
        "warnings": steps.result["warnings"],
        "changes": changes,
        "settings": settings,
    }
    tell("converted", converted=told)


def run(work: Path, tell: Tell) -> None:
    """Run the steps. Raises: TaskFailure: one failed; it is named."""
    CaseSteps(work, tell).run()


class CaseSteps:
    """The steps of one run. result: a `CaseResult` in the making."""

    def __init__(self, work: Path, tell: Tell) -> None:
        self.task = read_case_task(work)
        self.out = work / "out"
        self.merged: MergedConfig | None = None
        self._tell = tell
        self._key = ""
        self._left_out: dict[str, str] = {}
        self._kept: dict[str, dict[str, Any]] = {}
        self._rows: dict[str, dict[str, Any]] = {name: {"name": name, "state": "pending"} for name in STEPS}
        self._onnx = ""
        self._infer: Any = None
        self.vendor = self._vendor()
        self.result: dict[str, Any] = {
            "schema": CASE_SCHEMA, "case": self.task.name, "framework": self.task.framework, "vendor": self.task.vendor,
            "compiler": None, "precision": "fp32", "batch_size": 0, "state": "running", "device": self.task.device,
            "title": self.task.description.get("title", ""), "warnings": [], "started_ns": time.time_ns(),
        }  # fmt: skip

    def _vendor(self) -> Vendor:
        vendors = all_vendors()
        if self.task.vendor not in vendors:
            error = msg("child.there_no_vendor", f"there is no vendor {self.task.vendor!r}")
            raise TaskFailure("input_error", error, msg("child.there", f"there is {', '.join(vendors)}"))
        return vendors[self.task.vendor]

    def run(self) -> None:
        """All steps in their order."""
        (self.out / "steps").mkdir(parents=True, exist_ok=True)
        self._earlier = _read(self.out / "case.json")
        steps = dict(zip(STEPS, (
            self._init, self._data_and_model, self._validation, self._export, self._compile, self._inference,
            self._summary,
        ), strict=True))  # fmt: skip
        for done, (name, step) in enumerate(steps.items()):
            self._tell("phase", phase=PHASES.get(name, "preparing"), step=name)
            self._tell("progress", done=done, total=len(STEPS))
            self._one(name, step)
        self._tell("progress", done=len(STEPS), total=len(STEPS))

    def _one(self, name: str, step: Callable[[], dict[str, Any] | None]) -> None:
        """A step: left out, kept, or run and recorded."""
        row, begin = self._rows[name], time.perf_counter_ns()
        print(f"== {name}", flush=True)  # noqa: T201 - the log of the run
        if name in self._left_out:
            return self._note(row | {"state": "skipped", "why": self._left_out[name]})
        if record := self._kept.get(name):
            self._take(name, record["value"])
            return self._note(row | {"state": "kept", "took_ns": record["took_ns"], "files": record["files"]})
        if name == "data+model" and all(one in self._left_out or one in self._kept for one in RECORDED_STEPS):
            rows: list[dict[str, Any]] = self._earlier.get("steps", [])
            took = [one.get("took_ns") for one in rows if one.get("name") == name]
            return self._note(row | {"state": "kept", "took_ns": took[0] if took else None})
        self._note(row | {"state": "running"})
        before = self._files()
        try:
            value = step()
        except Exception as error:
            failure = to_failure(error)
            end = {"state": "failed", "why": failure.error, "took_ns": time.perf_counter_ns() - begin}
            self._note(row | end)
            raise TaskFailure(failure.reason, f"{name}: {failure.error}", failure.hint) from error
        took_ns = time.perf_counter_ns() - begin
        files = {place: _sha256(self.out / place) for place, at in self._files().items() if before.get(place) != at}
        if value is not None:
            self._take(name, value)
            self._record(name, {"key": self._key, "took_ns": took_ns, "files": files, "value": value})
        return self._note(row | {"state": "done", "took_ns": took_ns, "files": files})

    def _note(self, row: dict[str, Any]) -> None:
        """Show a step as it stands."""
        self._rows[row["name"]] = row
        self.result |= {"step": row["name"], "steps": list(self._rows.values())}
        self.result["e2e_ns"] = sum(one.get("took_ns") or 0 for one in self._rows.values())
        _write(self.out / "case.json", self.result)

    def _files(self) -> dict[str, tuple[int, int]]:
        """The files of the result, by place, with size and time."""
        files = [file for file in self.out.rglob("*") if file.is_file() and not file.is_symlink()]
        places = {file.relative_to(self.out).as_posix(): file.stat() for file in files}
        return {
            place: (at.st_size, at.st_mtime_ns)
            for place, at in places.items()
            if place.split("/")[0] not in STATE_FILES
        }

    # What earlier runs left.

    def _record_file(self, name: str) -> Path:
        return self.out / "steps" / f"{STEPS.index(name) + 1}.json"

    def _record(self, name: str, record: dict[str, Any]) -> None:
        _write(self._record_file(name), {"name": name, **record})

    def _find_kept(self) -> None:
        """Records of the same case and configuration whose files are whole."""
        self._kept = {name: record for name in RECORDED_STEPS if (record := self._whole_record(name))}
        if "inference" not in self._kept:  # a compiled model lives in its process
            self._kept.pop("compile", None)
        if ("inference" if self._config.compiler else "validation") in self._kept:
            self.result |= {key: self._earlier[key] for key in OBSERVED_KEYS if key in self._earlier}

    def _whole_record(self, name: str) -> dict[str, Any] | None:
        record = _read(self._record_file(name))
        try:
            whole = all(_sha256(self.out / place) == digest for place, digest in record["files"].items())
            return record if record["key"] == self._key and whole and isinstance(record["value"], dict) else None
        except (OSError, KeyError, TypeError, AttributeError):
            return None

    def _take(self, name: str, value: dict[str, Any]) -> None:
        """What a step gives the others and the result."""
        if name == "export":
            self._onnx = str(self.out / value["onnx"])
        else:
            self.result |= value

    # The steps.

    def configure(self) -> None:
        """Merge the layers, and finds out what is to be run. Raises: TaskFailure."""
        task, told = self.task, self.task.description
        host = {
            "perf_dir": str(self.out), "data_dir": task.data_dir, "log_dir": str(self.out), "vendor": task.vendor,
            "case": task.name, "framework": task.framework,
        }  # fmt: skip
        layers = told["case"], told["parameters"], told["vendors"].get(task.vendor, {}), task.command
        merged = self.merged = merge(host, *layers)
        self.result["warnings"] += merged.warnings
        self.result |= {
            "compiler": merged["compiler"], "precision": "fp16" if merged["fp16"] else "fp32",
            "batch_size": merged["batch_size"], "settings": _rows_of(merged),
        }  # fmt: skip
        self._left_out = skipped_steps(merged)
        for key in ("exist_onnx_path", "exist_compiler_path"):
            self._resolve(merged, key)
        if merged["compiler"] is not None:
            self._engine = self._chosen(merged)
        if merged["exist_onnx_path"]:
            self._onnx = merged["exist_onnx_path"]

    def _resolve(self, merged: MergedConfig, key: str) -> None:
        """A path of the configuration is one of the case's, or of its data. Raises: TaskFailure: nothing is there."""
        wanted = merged[key]
        if wanted is None:
            return
        root = Path(self.task.root)
        for folder in (root / "benchmarks" / self.task.name, root, Path(self.task.data_dir or root)):
            if (folder / wanted).exists():
                merged.settings[key] = replace(merged.settings[key], value=str(folder / wanted))
                return
        raise TaskFailure(
            "input_error",
            msg("child.not_there", f"{key}: {wanted} is not there"),
            msg("child.path_case_data_absolute", "a path in the case, in its data, or absolute"),
        )

    def _chosen(self, merged: MergedConfig) -> Engine:
        compiler: str = merged["compiler"]
        engine = find_engine(Path(self.task.root), self.vendor, compiler)
        if merged["fp16"] and not engine.fp16:
            raise TaskFailure(
                "input_error",
                msg("child.not_compute_fp16_here", f"{compiler} does not compute in fp16 here"),
                msg("child.set_fp16_false", "set fp16 to false"),
            )
        if merged["exist_compiler_path"] and not engine.loads_compiled:
            raise TaskFailure(
                "input_error",
                msg("child.loads_no_compiled_models", f"{compiler} loads no compiled models"),
                msg("child.leave_exist_compiler_path", "leave exist_compiler_path null"),
            )
        if not engine.onnx:
            self._left_out.setdefault("export", msg("child.takes_model_itself", f"{compiler} takes the model itself"))
        return engine

    def require(self) -> None:
        """Raises: TaskFailure: packages, data or the device are missing."""
        check_requirements(self.task, self.vendor, self._engine.requires if self.result["compiler"] is not None else ())

    def _init(self) -> None:
        self._see_one_device()
        self.configure()
        self.require()
        assert self.merged is not None
        self._config = self.merged.as_namedtuple()
        self._key = self._digest()
        self._find_kept()

    def _see_one_device(self) -> None:
        """Hide all devices but the one of the task; a list that is set already is what its number counts in."""
        variable, number = self.vendor.visible, self.task.device.partition(":")[2]
        if variable and number:
            listed = os.environ.get(variable, "")
            names = listed.split(",") if listed else []
            os.environ[variable] = names[int(number)] if int(number) < len(names) else number

    def _digest(self) -> str:
        """What decides a result: configuration, code, interpreter; wherever the case was laid out."""
        assert self.merged is not None
        free = ("perf_dir", "log_dir")
        settings = {key: one.value for key, one in self.merged.settings.items() if key not in free}
        told, root = json.dumps([settings, sys.version, sys.prefix, self.task.device]), Path(self.task.root)
        told = hashlib.sha256(told.replace(self.task.root, "").encode())
        for file in sorted(root.rglob("*")):
            if file.is_file() and "data" not in file.relative_to(root).parts and "__pycache__" not in file.parts:
                told.update(f"{file.relative_to(root).as_posix()} {_sha256(file)}\n".encode())
        return told.hexdigest()

    def _data_and_model(self) -> None:
        self._code = CaseCode(Path(self.task.root), self.task.name, self.task.framework, self.vendor)
        functions = self._code.functions
        self._loader = functions["build_dataloader"](self._config)
        self._model = None if self._config.no_validation else functions["create_model"](self._config)

    def _validation(self) -> dict[str, Any]:
        own = self._code.functions.get("model_forward")
        passed = self._forward("validation", own, self._model, model_call(self._model))
        return {"validation": passed}

    def _export(self) -> dict[str, Any]:
        path = str(self._code.functions["export_model"](self._model, self._config))
        file, out = (self.out / path).resolve(), self.out.resolve()
        if not file.is_file():
            raise TaskFailure(
                "model_error",
                msg("child.export_model_gave_which", f"export_model gave {path[:100]!r}, which is no file"),
                msg("child.give_path", "give its path"),
            )
        return {"onnx": file.relative_to(out).as_posix() if file.is_relative_to(out) else str(file)}

    def _compile(self) -> dict[str, Any]:
        begin = time.perf_counter_ns()
        self._infer = self._engine.make(self._config, self._onnx, self._model)
        took_ns = time.perf_counter_ns() - begin
        effective: dict[Any, Any] = getattr(self._infer, "effective", dict)()
        told = {str(name): str(value) for name, value in effective.items()}
        self._tell("effective", effective=told, version="")
        return {"compile_ns": took_ns, "effective": told}

    def _inference(self) -> dict[str, Any]:
        if self._infer is None:  # exist_compiler_path: loaded, not compiled
            self._infer = self._engine.make(self._config, self._onnx, self._model)
        own = self._code.functions.get("engine_forward")
        passed = self._forward("inference", own, self._infer, self._infer)
        if passed["foo_ns"]:
            told = msg(
                "child.s_engines_calls_no",
                f"{passed['foo_ns'] / 1e9:.3f} s of the engine's calls are no inference, as it says, "
                "and are subtracted",
            )
            self.result["warnings"].append(told)
        return {"inference": passed}

    def _forward(self, name: str, own: Any, runner: Any, call: Any) -> dict[str, Any]:
        """Validation or inference, by the case's own function where it has one."""
        clocks, meter = RoundTimer(self.vendor.synchronize, self._config.batch_size), LoadMeter()
        evaluator, given = self._code.functions["evaluator"], None
        if own is None:
            run_rounds(call, self._loader, evaluator, clocks, self._config.repeat)
        else:
            engine = TimedEngine(runner, clocks) if name == "inference" else runner
            given = tuple(own(engine, TimedData(self._loader, clocks), evaluator, self._config))
            self.result["metrics"] = {**self.result.get("metrics", {}), **summary.extra_metrics(given)}
        passed = case_pass(clocks, meter, given)
        if name == "inference" or self._config.compiler is None:
            summary.write_point(self.out, clocks, passed, self.result.get("compile_ns") or 0, self._tell)
        return passed

    def _summary(self) -> None:
        self.result |= summary.derived_fields(self.result, self.vendor, self.merged)
        summary.print_finish_info(self.result)
        self.result |= {"state": "succeeded", "finished_ns": time.time_ns()}


def _rows_of(merged: MergedConfig) -> list[dict[str, Any]]:
    return [asdict(replace(one, value=as_json(one.value))) for one in merged.settings.values()]


def _write(file: Path, content: object) -> None:
    """Writes JSON whole or not at all."""
    part = file.with_name(f"{file.name}.part")
    part.write_text(json.dumps(content, indent=1), "utf-8")
    part.replace(file)


def _read(file: Path) -> dict[str, Any]:
    """The object in a file, empty where there is none."""
    try:
        content: object = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


STAGES: dict[str, Callable[[Path, Tell], None]] = {"case": run, "case-check": check}
