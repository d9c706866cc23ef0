"""One file a converter, each with a `CONVERTER`; found by listing this folder.

The files import nothing heavy at their top: server and agent read what a converter offers without its framework, which
is imported where a model is converted: in a child of the interpreter that has it (`remote.child.convert`).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import pkgutil
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.protocol import Input, TaskFailure

MAX_CALIBRATION_ROWS = 512  # of the user's data that calibrate
_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")

Feeds = dict[str, Any]  # arrays of numpy by the input's name
Shapes = Mapping[str, Sequence[Any]]  # sizes; what is no number is open


class Rows:
    """Rows of the user's data: arrays of numpy by the input's name, whose first dimension is the rows.

    Those that calibrate a quantisation never judge it: of n rows, the 2nd, 4th, ... calibrate and the others evaluate.
    """

    def __init__(self, arrays: Feeds) -> None:
        """Takes arrays; those of one value and no dimension belong to every row.

        Raises: TaskFailure: they have not the same number of rows, or none.
        """
        counts = {name: values.shape[0] for name, values in arrays.items() if values.ndim}
        if len(set(counts.values())) != 1 or not min(counts.values()):
            told = ", ".join(f"{name}: {count}" for name, count in counts.items()) or "none"
            hint = msg("converters.first_dimension_every_array", "the first dimension of every array is its rows")
            raise TaskFailure(
                "input_error",
                msg("converters.data_no_common_number", f"the data have no common number of rows ({told})"),
                hint,
            )
        self.arrays, self.count = arrays, next(iter(counts.values()))

    @classmethod
    def read(cls, path: Path) -> Rows:
        """Those of an .npz; nothing is unpickled. Raises: TaskFailure: it is none."""
        np: Any = importlib.import_module("numpy")
        try:
            with np.load(path, allow_pickle=False) as file:
                return cls({name: file[name] for name in file.files})
        except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
            hint = msg("converters.write_numpy_savez_path", "write it with numpy.savez(path, **{input: values})")
            raise TaskFailure(
                "input_error", msg("converters.data_cannot_read", f"the data cannot be read: {error}"), hint
            ) from error

    def calibration(self) -> Rows:
        """The rows that calibrate, at most 512. Raises: TaskFailure: there is only one row, which evaluates."""
        if self.count < 2:
            error = msg(
                "converters.data_one_row_which",
                "the data have one row, which is to judge the model and cannot calibrate it",
            )
            raise TaskFailure(
                "input_error",
                error,
                msg("converters.give_more_rows_every", "give it more rows: every second one calibrates"),
            )
        return self._some(slice(1, 2 * MAX_CALIBRATION_ROWS, 2))

    def evaluation(self) -> Rows:
        """The rows that judge."""
        return self._some(slice(0, None, 2))

    def _some(self, which: slice) -> Rows:
        return Rows({name: values[which] if values.ndim else values for name, values in self.arrays.items()})

    def feeds(self, shapes: Shapes, batch: int = 1) -> Iterator[Feeds]:
        """What the model is fed, one run after the other.

        An array with as many dimensions as its input is cut into batches: of the size that the model wants, else of
        `batch`; one with a dimension more has a whole input in each row. Rows that fill no batch are left out.

        Args:
            shapes: of the model's inputs.
            batch: rows of a run where the model leaves it open.
        Raises: TaskFailure: names or dimensions are not those of the model, or the rows are fewer than its batch.
        """
        if missing := [name for name in shapes if name not in self.arrays]:
            hint = msg("converters.models_inputs", f"the model's inputs are {', '.join(shapes)}")
            raise TaskFailure("input_error", msg("converters.data_no", f"the data have no '{missing[0]}'"), hint)
        whole = {name: self._has_all_dimensions(name, shape) for name, shape in shapes.items()}
        fixed = {shape[0] for name, shape in shapes.items() if not whole[name] and shape}
        sizes = {size for size in fixed if isinstance(size, int) and size > 0}
        step = (
            1
            if any(whole[name] and self.arrays[name].ndim for name in shapes)
            else next(iter(sizes), min(batch, self.count))
        )
        if step > self.count:
            error = msg(
                "converters.rows_data_left_model",
                f"{self.count} rows of the data are left, the model takes {step} at once",
            )
            raise TaskFailure(
                "input_error",
                error,
                msg("converters.give_more_rows_every", "give it more rows: every second one calibrates"),
            )
        for start in range(0, self.count - step + 1, step):
            yield {name: self._cut(self.arrays[name], start, step, whole[name]) for name in shapes}

    def _has_all_dimensions(self, name: str, shape: Sequence[int | str | None]) -> bool:
        more = self.arrays[name].ndim - len(shape)
        if more not in (0, 1):
            error = msg(
                "converters.data_dimensions_model_wants",
                f"the data of '{name}' have {self.arrays[name].ndim} dimensions, the model wants {len(shape)}",
            )
            raise TaskFailure(
                "input_error",
                error,
                msg("converters.one_more_whole_input", "or one more, with a whole input in each row"),
            )
        return more == 1 or not shape

    @staticmethod
    def _cut(values: Any, start: int, step: int, whole: bool) -> Any:
        if not values.ndim:
            return values
        return values[start] if whole else values[start : start + step]


@dataclass(frozen=True)
class Converter:
    """A way to make another model of a model.

    Args:
        name: of the converter, and of its file.
        title: what texts call it.
        takes, makes: names of model formats, of `backends.FileFormat` and of `converters.formats`.
        needs: requirements of pip by the module that is looked for; the first one names the environment.
        convert: (model, target, options, rows) writes the target, and what belongs to it beside it. Raises whatever it
            likes; TaskFailure where a reason and a hint are known.
        applies: why a model is nothing for it, "" when it is something; cheap.
        options: its options and their values, the default first; () any text.
        calibrates: it needs rows of the user's data.
        runtimes: backends that run what it makes, () all that load the format.
        settings: options that those backends are to run it with.
        suffix: of the target, "" the first of the format.
        device: that it works on, "cpu" or "cuda:0".
        minutes: after which somebody should stop to wait.
    """

    name: str
    title: str
    takes: str
    makes: str
    needs: dict[str, str]
    convert: Callable[[Path, Path, dict[str, str], Rows | None], object]
    unsuitable_reason: Callable[[Path], str] = lambda _: ""
    options: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    calibrates: bool = False
    runtimes: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict[str, str])
    suffix: str = ""
    device: str = "cpu"
    timeout_minutes: float = 10.0

    def missing_packages(self) -> list[str]:
        """Requirements that this interpreter does not have, found without an import."""
        return [package for module, package in self.needs.items() if importlib.util.find_spec(module) is None]

    def tool_versions(self) -> dict[str, str]:
        """Versions of what it needs, in this interpreter."""
        return {module: installed_version(module, package) for module, package in self.needs.items()}

    def resolve_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """The value of each option: the given one, else the default.

        Raises: TaskFailure: input_error for an option or a value that it does not have.
        """
        for name, value in options.items():
            values = self.options.get(name)
            if values is None:
                hint = msg("converters.it_has", f"it has {', '.join(sorted(self.options)) or 'none'}")
                raise TaskFailure(
                    "input_error", msg("converters.no_option", f"{self.name} has no option '{name}'"), hint
                )
            if values and value not in values:
                raise TaskFailure(
                    "input_error", msg("converters.is", f"{self.name}: {name} is '{value}'"), f"use {', '.join(values)}"
                )
        return {name: options.get(name, values[0] if values else "") for name, values in self.options.items()}


def installed_version(module: str, package: str) -> str:
    """Version of a module; its distribution may have another name (onnxruntime-gpu)."""
    match = _REQUIREMENT.match(package)
    try:
        return importlib.metadata.version(match[0] if match else module)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(importlib.import_module(module), "__version__", ""))


@dataclass(frozen=True)
class Conversion:
    """A conversion as it is asked for.

    model, data: paths; data: an .npz with rows of the user's, "" none. stem: of the made file, "" that of the model.
    inputs, dims: what a job says of the model's inputs and their named dimensions, for the options `inputs` and `sizes`
    where these are not given.
    """

    converter: str
    model: str
    options: dict[str, str] = field(default_factory=dict[str, str])
    data: str = ""
    stem: str = ""
    inputs: list[Input] = field(default_factory=list[Input])
    dims: dict[str, int] = field(default_factory=dict[str, int])

    def default_options(self) -> dict[str, str]:
        """What the job says, as the texts of those options."""
        inputs = (f"{one.name}={one.dtype}[{','.join(map(str, one.dims))}]" for one in self.inputs)
        return {"inputs": ";".join(inputs), "sizes": ",".join(f"{name}={size}" for name, size in self.dims.items())}


@dataclass(frozen=True)
class Converted:
    """What a conversion made.

    file: the model, in a folder of its own with what belongs to it. took_ns: of the conversion alone. changed: False
    where the model has the operators, weights and types that it had before; None where nothing can tell.
    before, after: how often it has each operator. options: all of them. tools: versions of what converted.
    settings: options that a backend is to run it with. runtimes: backends that run it, () all that load the format.
    """

    converter: str
    format: str
    file: str
    took_ns: int
    changed: bool | None
    options: dict[str, str] = field(default_factory=dict[str, str])
    tools: dict[str, str] = field(default_factory=dict[str, str])
    settings: dict[str, str] = field(default_factory=dict[str, str])
    runtimes: list[str] = field(default_factory=list[str])
    before: dict[str, int] = field(default_factory=dict[str, int])
    after: dict[str, int] = field(default_factory=dict[str, int])


@cache
def all_converters() -> tuple[Converter, ...]:
    """Every converter of the folder, by name."""
    modules = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    return tuple(sorted((m.CONVERTER for m in modules if hasattr(m, "CONVERTER")), key=lambda c: c.name))


def converter(name: str) -> Converter:
    """The converter of that name.

    Raises: KeyError.
    """
    return {each.name: each for each in all_converters()}[name]
