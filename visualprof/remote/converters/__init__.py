"""One file per tool, each with a `CONVERTER` or several `CONVERTERS`; found by listing this folder.

The files have no heavy imports at the top: server and agent read the declarations without the frameworks. A framework
is imported only when a model is converted, in a child of the interpreter that has it (`remote.child.convert`).
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
from types import ModuleType
from typing import Any

from visualprof.messages import msg
from visualprof.remote.protocol import Input, TaskFailure

MAX_CALIBRATION_ROWS = 512
_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")

Feeds = dict[str, Any]  # arrays of numpy by the input's name
Shapes = Mapping[str, Sequence[Any]]  # sizes; a value that is not a number is an open dimension


class Rows:
    """Rows of the user's data: numpy arrays by the input's name, whose first dimension is the rows.

    Rows that calibrate a quantization never judge it: of n rows, the 2nd, 4th, ... calibrate and the others evaluate.
    """

    def __init__(self, arrays: Feeds) -> None:
        """Take arrays. Arrays without dimensions belong to every row.

        Raises:
            TaskFailure: The arrays have different numbers of rows, or none.
        """
        counts = {name: values.shape[0] for name, values in arrays.items() if values.ndim}
        if len(set(counts.values())) != 1 or not min(counts.values()):
            row_counts = ", ".join(f"{name}: {count}" for name, count in counts.items()) or "none"
            hint = msg("converters.first_dimension_every_array", "the first dimension of every array is its rows")
            raise TaskFailure(
                "input_error",
                msg("converters.data_no_common_number", f"the data have no common number of rows ({row_counts})"),
                hint,
            )
        self.arrays, self.count = arrays, next(iter(counts.values()))

    @classmethod
    def read(cls, path: Path) -> Rows:
        """Read the rows of an .npz. Nothing is unpickled.

        Raises:
            TaskFailure: The file is not an .npz.
        """
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
        """Return the rows that calibrate, at most 512.

        Raises:
            TaskFailure: There is only one row, which evaluates.
        """
        if self.count < 2:
            error = msg(
                "converters.data_one_row_which",
                "the data have only one row, which is needed to judge the model",
            )
            raise TaskFailure(
                "input_error",
                error,
                msg("converters.give_more_rows_every", "provide more rows: every second row is used for calibration"),
            )
        return self._select(slice(1, 2 * MAX_CALIBRATION_ROWS, 2))

    def evaluation(self) -> Rows:
        """Return the rows that evaluate."""
        return self._select(slice(0, None, 2))

    def _select(self, rows: slice) -> Rows:
        return Rows({name: values[rows] if values.ndim else values for name, values in self.arrays.items()})

    def feeds(self, shapes: Shapes, batch: int = 1) -> Iterator[Feeds]:
        """Yield the inputs of one run after the other.

        An array with as many dimensions as its input is cut into batches, of the model's size or else of `batch`. An
        array
        with one dimension more has a whole input in each row. Incomplete batches are skipped.

        Args:
            shapes: Shapes of the model's inputs.
            batch: Rows per run if the model leaves it open.

        Raises:
            TaskFailure: Names or dimensions differ from the model's, or there are fewer rows than its batch.
        """
        if missing := [name for name in shapes if name not in self.arrays]:
            hint = msg("converters.models_inputs", f"the model's inputs are {', '.join(shapes)}")
            raise TaskFailure("input_error", msg("converters.data_no", f"the data have no '{missing[0]}'"), hint)
        has_input_per_row = {name: self._has_all_dimensions(name, shape) for name, shape in shapes.items()}
        fixed_sizes = {shape[0] for name, shape in shapes.items() if not has_input_per_row[name] and shape}
        sizes = {size for size in fixed_sizes if isinstance(size, int) and size > 0}
        step = (
            1
            if any(has_input_per_row[name] and self.arrays[name].ndim for name in shapes)
            else next(iter(sizes), min(batch, self.count))
        )
        if step > self.count:
            error = msg(
                "converters.rows_data_left_model",
                f"only {self.count} rows of the data remain, but the model takes {step} at once",
            )
            raise TaskFailure(
                "input_error",
                error,
                msg("converters.give_more_rows_every", "provide more rows: every second row is used for calibration"),
            )
        for start in range(0, self.count - step + 1, step):
            yield {name: self._cut(self.arrays[name], start, step, has_input_per_row[name]) for name in shapes}

    def _has_all_dimensions(self, name: str, shape: Sequence[int | str | None]) -> bool:
        extra = self.arrays[name].ndim - len(shape)
        if extra not in (0, 1):
            error = msg(
                "converters.data_dimensions_model_wants",
                f"the data of '{name}' have {self.arrays[name].ndim} dimensions, the model has {len(shape)}",
            )
            raise TaskFailure(
                "input_error",
                error,
                msg(
                    "converters.one_more_whole_input",
                    "the data may also have one more dimension, with a whole input in each row",
                ),
            )
        return extra == 1 or not shape

    @staticmethod
    def _cut(values: Any, start: int, step: int, whole: bool) -> Any:
        if not values.ndim:
            return values
        return values[start] if whole else values[start : start + step]


@dataclass(frozen=True)
class Converter:
    """A way to convert a model into another one.

    Args:
        name: Name of the converter.
        title: The name in texts.
        takes: Name of the input's model format, as in `backends.FileFormat` and `converters.formats`.
        makes: Name of the output's model format.
        needs: pip requirements by module; the first one names the environment.
        convert: (model, target, options, rows) writes the target, and further files next to it. Raises any exception;
            `TaskFailure` if a reason and a hint are known.
        unsuitable_reason: Returns why a model cannot be converted, "" if it can. Cheap.
        options: Options with their values, the default first; () for any text.
        calibrates: Whether rows of the user's data are required.
        runtimes: Backends that can run the result; () for all that load the format.
        settings: Options with which those backends must run the result.
        suffix: Suffix of the target; "" for the first of the format.
        device: The device that it uses, "cpu" or "cuda:0".
        timeout_minutes: Time limit of a conversion, in minutes.
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
        """Return the requirements that this interpreter does not have, without importing anything."""
        return [package for module, package in self.needs.items() if importlib.util.find_spec(module) is None]

    def tool_versions(self) -> dict[str, str]:
        """Return the versions of the required modules in this interpreter."""
        return {module: installed_version(module, package) for module, package in self.needs.items()}

    def resolve_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the value of each option: the given one, otherwise the default.

        Raises:
            TaskFailure: input_error for an unknown option or value.
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
    """Return the version of a module. Its distribution may have another name (onnxruntime-gpu)."""
    match = _REQUIREMENT.match(package)
    try:
        return importlib.metadata.version(match[0] if match else module)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(importlib.import_module(module), "__version__", ""))


@dataclass(frozen=True)
class Conversion:
    """A requested conversion.

    Attributes:
        converter: Name of the converter.
        model: Path of the model.
        options: Options that differ from the default.
        data: Path of an .npz with rows of the user's data, "" without.
        stem: Stem of the converted file, "" for that of the model.
        inputs: Inputs of the model as the job declares them; the default of the option `inputs`.
        dims: Sizes of named dimensions in the job; the default of the option `sizes`.
    """

    converter: str
    model: str
    options: dict[str, str] = field(default_factory=dict[str, str])
    data: str = ""
    stem: str = ""
    inputs: list[Input] = field(default_factory=list[Input])
    dims: dict[str, int] = field(default_factory=dict[str, int])

    def default_options(self) -> dict[str, str]:
        """Return the job's inputs and sizes as the texts of those options."""
        inputs = (f"{tensor.name}={tensor.dtype}[{','.join(map(str, tensor.dims))}]" for tensor in self.inputs)
        return {"inputs": ";".join(inputs), "sizes": ",".join(f"{name}={size}" for name, size in self.dims.items())}


@dataclass(frozen=True)
class Converted:
    """The result of a conversion.

    Attributes:
        converter: Name of the converter.
        format: Format of the converted model.
        file: The model, in a folder with the files that belong to it.
        took_ns: Duration of the conversion.
        changed: False if operators, weights and types are unchanged; `None` if unknown.
        options: All options.
        tools: Versions of the tools.
        settings: Options with which a backend must run the model.
        runtimes: Backends that run the model; () for all that load the format.
        before: Count of each operator before the conversion.
        after: Count of each operator after it.
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
    """Return every converter of the folder, sorted by name."""
    converters: list[Converter] = []
    for entry in pkgutil.iter_modules(__path__):
        if not entry.ispkg:
            converters += converters_in(importlib.import_module(f"{__name__}.{entry.name}"))
    return tuple(sorted(converters, key=lambda converter: converter.name))


def converters_in(module: ModuleType) -> Sequence[Converter]:
    """Return the converters of a module of this folder."""
    return getattr(module, "CONVERTERS", None) or [module.CONVERTER]


def converter(name: str) -> Converter:
    """Return the converter of a name.

    Raises:
        KeyError: There is no such converter.
    """
    return {kind.name: kind for kind in all_converters()}[name]
