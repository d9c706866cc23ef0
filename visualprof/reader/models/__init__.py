"""Model formats, one file each with a `MODEL`; found by listing this folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cache
from pathlib import Path

from visualprof.errors import FormatError, UnknownFormat
from visualprof.messages import msg
from visualprof.reader.foreign_files import unknown_format
from visualprof.reader.graph import ModelGraph, ModelTooLarge
from visualprof.reader.registry import Plugin, all_formats, labels, plugins
from visualprof.reader.source import Progress, Source


def _never_rejected(name: str, head: bytes) -> FormatError | None:
    """Return `None`, for formats that users do not mistake for others."""
    del name, head


@dataclass(frozen=True)
class ModelFormat(Plugin):
    """A model format: like `registry.Format`, but it reads a graph.

    Args:
        read: Reads the whole source. Raises `FormatError`.
        shared_suffixes: File name endings that other files use as well. Such a file is examined, and silently skipped
            if its content is something else.
        refuse: Returns an error for a file (name and first 64 KiB) that no format recognizes, but that users mistake
            for a model of this format; `None` for any other file.
    """

    read: Callable[[Source], ModelGraph]
    _: KW_ONLY
    shared_suffixes: tuple[str, ...] = ()
    refuse: Callable[[str, bytes], FormatError | None] = _never_rejected

    def graph(self, source: Source) -> ModelGraph:
        """Return the graph of a source.

        Raises:
            FormatError: The content is invalid, or the model is larger than can be shown.
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
    """Return all model formats, the most specific first."""
    return plugins(sys.modules[__name__], "MODEL", ModelFormat)


@cache
def model_suffixes(shared: bool = True) -> tuple[str, ...]:
    """Return the file name endings of models, in lower case, including those that other files use if `shared`."""
    return tuple(s for m in model_formats() for s in (*m.suffixes, *(m.shared_suffixes if shared else ())))


def recognize_model(source: Source) -> ModelFormat | None:
    """Return the model format of a file by its content, or `None`."""
    head = source.head()
    return next((model for model in model_formats() if model.sniff(head)), None)


def rejection_reason(name: str, head: bytes) -> FormatError | None:
    """Return an error for a file that users mistake for a model, or `None` for any other file."""
    return next((error for model in model_formats() if (error := model.refuse(name, head))), None)


def _profile_error(name: str, head: bytes) -> FormatError | None:
    """Return the error for a profile in place of a model, or `None` for any other file."""
    profile = next((entry for entry in all_formats() if entry.start(head) and entry.sniff(head)), None)
    if profile is None:
        return None
    return UnknownFormat(
        msg("models.profile_not_model", f"{name} is a profile ({profile.label}), not a model"),
        msg("models.show_its_overview", "show it: `visualprof view overview`"),
    )


def read_model(path: str | Path, progress: Progress | None = None) -> ModelGraph:
    """Read a model file into a graph, whatever its name; nothing in it is executed.

    This can take long and use much memory. A long-running program should read models with `visualprof.reader.child`.

    Raises:
        UnknownFormat: No model format recognizes the content.
        FormatError: The content is invalid.
        SourceError: The file cannot be read.
    """
    source = Source(path, progress)
    model = recognize_model(source)
    if model is None:
        head = source.head()
        raise (
            _profile_error(source.name, head)
            or rejection_reason(source.name, head)
            or unknown_format(
                source.name,
                head,
                msg("models.no_model_format_recognises", f"{source.name}: no model format recognizes the content"),
                msg("models.visualprof_reads", f"visualprof reads {labels(model_formats())}"),
            )
        )
    return model.graph(source)
