"""The stages `case` and `case-check`: run the seven steps of a benchmark case, or report its missing requirements.

`task.json` has a `CaseTask` under "case". Each step writes a record to `out/steps/`, with the sha256 of its files. A
later run of the same case and configuration reuses complete records and resumes after them. `out/case.json` is the
result so far, rewritten after each step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.cases import CASE_SCHEMA, STEPS, Engine, Vendor, all_vendors
from visualprof.remote.cases.layers import MergedConfig, as_json, merge, skipped_steps
from visualprof.remote.child.case import summary
from visualprof.remote.child.case.code import CaseCode, find_engine
from visualprof.remote.child.case.forward import RoundTimer, TimedData, TimedEngine, case_pass, model_call, run_rounds
from visualprof.remote.child.case.result_files import case_digest, file_sha256, list_files, read_json, write_json
from visualprof.remote.child.case.task import check_requirements, read_case_task
from visualprof.remote.child.failures import to_failure
from visualprof.remote.child.host import LoadMeter
from visualprof.remote.protocol import TaskFailure

Emit = Callable[..., None]
PHASES = {"validation": "measuring", "export": "converting", "compile": "converting", "inference": "measuring"}
RECORDED_STEPS = ("validation", "export", "compile", "inference")
# Added by the agent, which monitors the device. Kept if nothing is measured again.
OBSERVED_KEYS = (
    "memory_used_bytes",
    "utilization",
    "power_w",
    "temperature_c",
    "clock_mhz",
    "energy_j_per_sample",
    "throttled",
)


def check(work: Path, emit: Emit) -> None:
    """Report missing requirements and warnings without running code of the case."""
    steps = CaseSteps(work, emit)
    problem, hint, reason = "", "", ""
    try:
        steps.configure()
        steps.require()
    except TaskFailure as failure:
        problem, hint, reason = failure.error, failure.hint, failure.reason
    settings_in_use = steps.merged.settings.values() if steps.merged else ()
    settings = [f"{setting.key} = {as_json(setting.value)} ({setting.origin})" for setting in settings_in_use]
    changes = steps.merged.changes if steps.merged else []
    told = {
        "missing": problem,
        "hint": hint,
        "reason": reason,
        "warnings": steps.result["warnings"],
        "changes": changes,
        "settings": settings,
    }
    emit("converted", converted=told)


def run(work: Path, emit: Emit) -> None:
    """Run the steps.

    Raises:
        TaskFailure: A step failed; the text names it.
    """
    CaseSteps(work, emit).run()


class CaseSteps:
    """The steps of one run.

    Attributes:
        task: The case.
        out: Folder of the result.
        merged: The merged configuration; `None` before the first step.
        vendor: The platform.
        result: The `CaseResult` so far.
    """

    def __init__(self, work: Path, emit: Emit) -> None:
        self.task = read_case_task(work)
        self.out = work / "out"
        self.merged: MergedConfig | None = None
        self._emit = emit
        self._key = ""
        self._left_out: dict[str, str] = {}
        self._records: dict[str, dict[str, Any]] = {}
        self._rows: dict[str, dict[str, Any]] = {name: {"name": name, "state": "pending"} for name in STEPS}
        self._onnx = ""
        self._infer: Any = None
        self.vendor = self._vendor()
        self.result: dict[str, Any] = {
            "schema": CASE_SCHEMA,
            "case": self.task.name,
            "framework": self.task.framework,
            "vendor": self.task.vendor,
            "compiler": None,
            "precision": "fp32",
            "batch_size": 0,
            "state": "running",
            "device": self.task.device,
            "title": self.task.description.get("title", ""),
            "warnings": [],
            "started_ns": time.time_ns(),
        }

    def _vendor(self) -> Vendor:
        vendors = all_vendors()
        if self.task.vendor not in vendors:
            error = msg("child.there_no_vendor", f"unknown vendor {self.task.vendor!r}")
            raise TaskFailure("input_error", error, msg("child.there", f"available vendors: {', '.join(vendors)}"))
        return vendors[self.task.vendor]

    def run(self) -> None:
        """Run all steps in order."""
        (self.out / "steps").mkdir(parents=True, exist_ok=True)
        self._earlier = read_json(self.out / "case.json")
        steps = dict(
            zip(
                STEPS,
                (
                    self._init,
                    self._data_and_model,
                    self._validation,
                    self._export,
                    self._compile,
                    self._inference,
                    self._summary,
                ),
                strict=True,
            )
        )
        for done, (name, step) in enumerate(steps.items()):
            self._emit("phase", phase=PHASES.get(name, "preparing"), step=name)
            self._emit("progress", done=done, total=len(STEPS))
            self._run_step(name, step)
        self._emit("progress", done=len(STEPS), total=len(STEPS))

    def _run_step(self, name: str, step: Callable[[], dict[str, Any] | None]) -> None:
        """Skip a step, reuse its record, or run and record it."""
        row, start = self._rows[name], time.perf_counter_ns()
        print(f"== {name}", flush=True)  # noqa: T201 - the log of the run
        if name in self._left_out:
            return self._update_row(row | {"state": "skipped", "why": self._left_out[name]})
        if record := self._records.get(name):
            self._apply_value(name, record["value"])
            return self._update_row(row | {"state": "kept", "took_ns": record["took_ns"], "files": record["files"]})
        if name == "data+model" and all(item in self._left_out or item in self._records for item in RECORDED_STEPS):
            rows: list[dict[str, Any]] = self._earlier.get("steps", [])
            took = [item.get("took_ns") for item in rows if item.get("name") == name]
            return self._update_row(row | {"state": "kept", "took_ns": took[0] if took else None})
        self._update_row(row | {"state": "running"})
        before = list_files(self.out)
        try:
            value = step()
        except Exception as error:
            failure = to_failure(error)
            end = {"state": "failed", "why": failure.error, "took_ns": time.perf_counter_ns() - start}
            self._update_row(row | end)
            raise TaskFailure(failure.reason, f"{name}: {failure.error}", failure.hint) from error
        took_ns = time.perf_counter_ns() - start
        files = {
            place: file_sha256(self.out / place)
            for place, at in list_files(self.out).items()
            if before.get(place) != at
        }
        if value is not None:
            self._apply_value(name, value)
            self._record(name, {"key": self._key, "took_ns": took_ns, "files": files, "value": value})
        return self._update_row(row | {"state": "done", "took_ns": took_ns, "files": files})

    def _update_row(self, row: dict[str, Any]) -> None:
        """Update the row of a step and write the result."""
        self._rows[row["name"]] = row
        self.result |= {"step": row["name"], "steps": list(self._rows.values())}
        self.result["e2e_ns"] = sum(item.get("took_ns") or 0 for item in self._rows.values())
        write_json(self.out / "case.json", self.result)

    # Records of earlier runs.

    def _record_file(self, name: str) -> Path:
        return self.out / "steps" / f"{STEPS.index(name) + 1}.json"

    def _record(self, name: str, record: dict[str, Any]) -> None:
        write_json(self._record_file(name), {"name": name, **record})

    def _load_records(self) -> None:
        """Load the records of the same case and configuration whose files are complete."""
        self._records = {name: record for name in RECORDED_STEPS if (record := self._complete_record(name))}
        if "inference" not in self._records:  # a compiled model exists only in its process
            self._records.pop("compile", None)
        if ("inference" if self._config.compiler else "validation") in self._records:
            self.result |= {key: self._earlier[key] for key in OBSERVED_KEYS if key in self._earlier}

    def _complete_record(self, name: str) -> dict[str, Any] | None:
        record = read_json(self._record_file(name))
        try:
            whole = all(file_sha256(self.out / place) == digest for place, digest in record["files"].items())
            return record if record["key"] == self._key and whole and isinstance(record["value"], dict) else None
        except (OSError, KeyError, TypeError, AttributeError):
            return None

    def _apply_value(self, name: str, value: dict[str, Any]) -> None:
        """Apply the value of a step to later steps and to the result."""
        if name == "export":
            self._onnx = str(self.out / value["onnx"])
        else:
            self.result |= value

    # The steps.

    def configure(self) -> None:
        """Merge the configuration layers and determine what to run.

        Raises:
            TaskFailure: The configuration is invalid.
        """
        task, told = self.task, self.task.description
        host = {
            "perf_dir": str(self.out),
            "data_dir": task.data_dir,
            "log_dir": str(self.out),
            "vendor": task.vendor,
            "case": task.name,
            "framework": task.framework,
        }
        layers = told["case"], told["parameters"], told["vendors"].get(task.vendor, {}), task.command
        merged = self.merged = merge(host, *layers)
        self.result["warnings"] += merged.warnings
        self.result |= {
            "compiler": merged["compiler"],
            "precision": "fp16" if merged["fp16"] else "fp32",
            "batch_size": merged["batch_size"],
            "settings": _rows_of(merged),
        }
        self._left_out = skipped_steps(merged)
        for key in ("exist_onnx_path", "exist_compiler_path"):
            self._resolve(merged, key)
        if merged["compiler"] is not None:
            self._engine = self._chosen(merged)
        if merged["exist_onnx_path"]:
            self._onnx = merged["exist_onnx_path"]

    def _resolve(self, merged: MergedConfig, key: str) -> None:
        """Make a path of the configuration absolute. It is relative to the case or to its data.

        Raises:
            TaskFailure: There is no such file.
        """
        path = merged[key]
        if path is None:
            return
        root = Path(self.task.root)
        for folder in (root / "benchmarks" / self.task.name, root, Path(self.task.data_dir or root)):
            if (folder / path).exists():
                merged.settings[key] = replace(merged.settings[key], value=str(folder / path))
                return
        raise TaskFailure(
            "input_error",
            msg("child.not_there", f"{key}: {path} does not exist"),
            msg("child.path_case_data_absolute", "give a path in the case, in its data, or an absolute path"),
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
        """Check the requirements of the case.

        Raises:
            TaskFailure: Packages, data or the device are missing.
        """
        check_requirements(self.task, self.vendor, self._engine.requires if self.result["compiler"] is not None else ())

    def _init(self) -> None:
        self._see_one_device()
        self.configure()
        self.require()
        assert self.merged is not None
        self._config = self.merged.as_namedtuple()
        self._key = case_digest(self.task, self.merged)
        self._load_records()

    def _see_one_device(self) -> None:
        """Hide all devices but that of the task.

        If a list of visible devices is already set, the number of the task's device indexes that list.
        """
        variable, number = self.vendor.visible, self.task.device.partition(":")[2]
        if variable and number:
            listed = os.environ.get(variable, "")
            names = listed.split(",") if listed else []
            os.environ[variable] = names[int(number)] if int(number) < len(names) else number

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
                msg("child.export_model_gave_which", f"export_model gave {path[:100]!r}, which is not a file"),
                msg("child.give_path", "return the path of the exported file"),
            )
        return {"onnx": file.relative_to(out).as_posix() if file.is_relative_to(out) else str(file)}

    def _compile(self) -> dict[str, Any]:
        begin = time.perf_counter_ns()
        self._infer = self._engine.make(self._config, self._onnx, self._model)
        took_ns = time.perf_counter_ns() - begin
        effective: dict[Any, Any] = getattr(self._infer, "effective", dict)()
        told = {str(name): str(value) for name, value in effective.items()}
        self._emit("effective", effective=told, version="")
        return {"compile_ns": took_ns, "effective": told}

    def _inference(self) -> dict[str, Any]:
        if self._infer is None:  # exist_compiler_path: loaded, not compiled
            self._infer = self._engine.make(self._config, self._onnx, self._model)
        own = self._code.functions.get("engine_forward")
        passed = self._forward("inference", own, self._infer, self._infer)
        if passed["foo_ns"]:
            told = msg(
                "child.s_engines_calls_no",
                f"{passed['foo_ns'] / 1e9:.3f} s of the engine's calls are not inference, as the engine reports, "
                "and are subtracted",
            )
            self.result["warnings"].append(told)
        return {"inference": passed}

    def _forward(self, name: str, case_function: Any, runner: Any, call: Any) -> dict[str, Any]:
        """Run validation or inference, with the case's own function if it has one."""
        clocks, meter = RoundTimer(self.vendor.synchronize, self._config.batch_size), LoadMeter()
        evaluator, returned = self._code.functions["evaluator"], None
        if case_function is None:
            run_rounds(call, self._loader, evaluator, clocks, self._config.repeat)
        else:
            engine = TimedEngine(runner, clocks) if name == "inference" else runner
            returned = tuple(case_function(engine, TimedData(self._loader, clocks), evaluator, self._config))
            self.result["metrics"] = {**self.result.get("metrics", {}), **summary.extra_metrics(returned)}
        passed = case_pass(clocks, meter, returned)
        if name == "inference" or self._config.compiler is None:
            summary.write_point(self.out, clocks, passed, self.result.get("compile_ns") or 0, self._emit)
        return passed

    def _summary(self) -> None:
        self.result |= summary.derived_fields(self.result, self.vendor, self.merged)
        summary.print_finish_info(self.result)
        self.result |= {"state": "succeeded", "finished_ns": time.time_ns()}


def _rows_of(merged: MergedConfig) -> list[dict[str, Any]]:
    return [asdict(replace(setting, value=as_json(setting.value))) for setting in merged.settings.values()]


STAGES: dict[str, Callable[[Path, Emit], None]] = {"case": run, "case-check": check}
