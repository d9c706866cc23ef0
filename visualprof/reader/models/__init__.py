"""One file a model format, each with a `MODEL`; found by listing this folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cache
from pathlib import Path

from visualprof.errors import FormatError, UnknownFormat
from visualprof.messages import msg
from visualprof.reader.graph import ModelGraph, ModelTooLarge
from visualprof.reader.registry import Plugin, labels, plugins
from visualprof.reader.source import Progress, Source


def _never_rejected(name: str, head: bytes) -> FormatError | None:
    """For formats that nothing else is taken for."""
    del name, head


@dataclass(frozen=True)
class ModelFormat(Plugin):
    """A model format: like `registry.Format`, but it reads a graph.

    Args:
        read: reads the whole source. Raises FormatError.
        shared_suffixes: endings of file names that others have too: such a file is looked at, and passed over in
            silence when it is something else.
        refuse: why a file (its name and first 64 KiB) that no format recognises, but users take for one of these, is
            not read and what to do; None when it is none of them.
    """

    read: Callable[[Source], ModelGraph]
    _: KW_ONLY
    shared_suffixes: tuple[str, ...] = ()
    refuse: Callable[[str, bytes], FormatError | None] = _never_rejected

    def graph(self, source: Source) -> ModelGraph:
        """The graph of a whole source.

        Raises: FormatError: also when the model is larger than can be shown.
        """
        hint = msg("models.export_without_functions_part", "export it without functions, or a part of it")
        try:
            return self.read(source)
        except ModelTooLarge as error:
            raise source.error(str(error), hint) from error
        except RecursionError as error:
            raise source.error(
                msg("models.model_nests_too_deep", "the model nests too deep to be read"), hint
            ) from error


@cache
def model_formats() -> tuple[ModelFormat, ...]:
    """Every model format, the most specific first."""
    return plugins(sys.modules[__name__], "MODEL", ModelFormat)


@cache
def model_suffixes(shared: bool = True) -> tuple[str, ...]:
    """Endings of the names of model files, in lower case; shared: also those that other files have."""
    return tuple(s for m in model_formats() for s in (*m.suffixes, *(m.shared_suffixes if shared else ())))


def recognize_model(source: Source) -> ModelFormat | None:
    """The model format of a file by its content, None when it is none."""
    head = source.head()
    return next((model for model in model_formats() if model.sniff(head)), None)


def rejection_reason(name: str, head: bytes) -> FormatError | None:
    """Why a file that is no model is not read although users take it for one; None when it is another thing."""
    return next((error for model in model_formats() if (error := model.refuse(name, head))), None)


def read_model(path: str | Path, progress: Progress | None = None) -> ModelGraph:
    """A model file as a graph, whatever its name; nothing in it is executed.

    It may take long and much memory: in a program that goes on, read it with `visualprof.reader.child`.

    Raises: UnknownFormat, FormatError, SourceError.
    """
    source = Source(path, progress)
    model = recognize_model(source)
    if model is None:
        raise rejection_reason(source.name, source.head()) or UnknownFormat(
            msg("models.no_model_format_recognises", f"{source.name}: no model format recognises its content"),
            msg("models.visualprof_reads", f"visualprof reads {labels(model_formats())}"),
        )
    return model.graph(source)
