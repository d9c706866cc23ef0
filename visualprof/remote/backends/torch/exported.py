"""Read files of torch.export without unpickling or loading native code."""

from __future__ import annotations

import importlib
import pickle
import re
import zipfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from visualprof.messages import msg
from visualprof.remote.backends import Feeds, check_inputs
from visualprof.remote.protocol import TaskFailure

SAVE = msg("backends.save_torch_jit_save", "save it with torch.jit.save or torch.export.save")
Call = tuple[tuple[Any, ...], dict[str, Any]]


def is_export(path: Path) -> bool:
    """Whether a file is a .pt2, by the names in its archive.

    Raises:
        TaskFailure: The file is neither a .pt2 nor TorchScript.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError) as error:
        raise TaskFailure(
            "model_error",
            msg("backends.neither_torchscript_nor_pt2", f"this is neither TorchScript nor a .pt2: {error}"),
            SAVE,
        ) from error
    if any(re.search(r"(^|/)(archive_format|serialized_exported_program\.json)$", name) for name in names):
        return True
    if not any(re.search(r"(^|/)constants\.pkl$", name) for name in names):
        raise TaskFailure(
            "model_error",
            msg(
                "backends.pickle_neither_torchscript_nor",
                "this is a pickle, neither TorchScript nor a .pt2; it is not loaded",
            ),
            SAVE,
        )
    return False


def load_program(torch: Any, path: Path) -> Any:
    """Return the program of a .pt2.

    Raises:
        TaskFailure: The file contains code.
    """
    with _nothing_executed(torch):
        return torch.export.load(str(path))


def load_export(torch: Any, path: Path, device: str, feeds: Feeds) -> tuple[Any, Callable[[Feeds], Call]]:
    """Return the module of a .pt2, and a function that orders its arguments.

    Raises:
        TaskFailure: The file contains code, or its inputs are not those of the feeds.
    """
    program = load_program(torch, path)
    if device != "cpu":  # the nodes of an exported graph name the device
        program = importlib.import_module("torch.export.passes").move_to_device_pass(program, device)
    wanted: list[str] = list(program.graph_signature.user_inputs)
    positional, named = _arguments(program.call_spec.in_spec)
    if positional + len(named) != len(wanted):
        raise TaskFailure(
            "model_error",
            msg("backends.pt2_takes_nested_inputs", "this .pt2 takes nested inputs"),
            msg("backends.export_model_whose_inputs", "export a model that takes only single tensors as inputs"),
        )
    order = wanted if set(wanted) == set(feeds) else list(feeds) if len(wanted) == len(feeds) else None
    if order is None:
        check_inputs(feeds, wanted)
    names = order or []

    def call(tensors: Feeds) -> Call:
        values = [tensors[name] for name in names]
        return tuple(values[:positional]), dict(zip(named, values[positional:], strict=True))

    return program.module(), call


def _arguments(spec: Any) -> tuple[int, list[str]]:
    """Return the number of positional inputs of an exported program, and the names of the other inputs."""
    places, keywords = spec.child(0), spec.child(1)
    return places.num_leaves, [str(name) for name in keywords.context or ()]


@contextmanager
def _nothing_executed(torch: Any) -> Generator[None]:
    """Prevent `torch.export.load` from unpickling parts of a .pt2 and from loading native code."""
    load, package = torch.load, None
    with suppress(ImportError):
        package = importlib.import_module("torch.export.pt2_archive._package")

    def tensors_only(*args: Any, **options: Any) -> Any:
        try:
            return load(*args, **{**options, "weights_only": True})
        except pickle.UnpicklingError as error:
            raise _code_inside() from error

    def refuse(*args: Any, **options: Any) -> Any:
        raise _code_inside()

    replaced = ((torch, "load", tensors_only), (pickle, "loads", refuse), (torch._C, "_pickle_load_obj", refuse))  # noqa: SLF001
    with ExitStack() as until:
        for owner, name, value in (*replaced, (package, "_load_aoti", refuse)):
            if hasattr(owner, name):  # versions differ
                until.enter_context(patch.object(owner, name, value))
        yield


def _code_inside() -> TaskFailure:
    error = msg(
        "backends.pt2_holds_more_than",
        "this .pt2 holds more than a graph and tensors: a pickle or native code, which is not loaded",
    )
    return TaskFailure(
        "model_error",
        error,
        msg("backends.export_anew_torch_export", "export it again with torch.export.save, without custom objects"),
    )
