"""Upload files to a server: a model with the files that it names, and arrays."""

from __future__ import annotations

import mmap
import sys
import time
from pathlib import Path

from visualprof.cli import _request, _watch
from visualprof.cli._server import Json, Server
from visualprof.errors import BadParameter, VisualprofError

SAVED = "saved_model.pb"


def send_model(server: Server, path: Path) -> tuple[Json, dict[str, str]]:
    """Upload a model; return the server's answer and the sha256 of the files that the model names, by path."""
    path = model_of(path)
    model = send(server, path, "model")
    return model, _request.parts_of(model) or {place: _part(server, path, place) for place in _request.external(model)}


def send(server: Server, path: Path, kind: str, **query: str) -> Json:
    """Upload a file; return the server's answer.

    Raises:
        VisualprofError: The file is of another kind than `model`, `array` or `part`.
        Unreachable: The server does not answer.
        Refused: The server answers with an error.
    """
    live, last = sys.stderr.isatty(), 0.0

    def progress(done: int, size: int) -> None:
        nonlocal last
        if live and (time.monotonic() - last > 0.1 or done == size):
            last = time.monotonic()
            sys.stderr.write(f"\r\x1b[2K{_watch.plain(path.name)}: {100 * done // max(size, 1)} % sent")

    answer = server.upload(path, progress, **query)
    if live:
        sys.stderr.write("\r\x1b[2K")
    if answer["kind"] != kind:
        hint = "inputs are given by --input NAME=FILE.npy" if kind == "model" else "an input is an .npy or .npz file"
        raise VisualprofError(f"{path.name} is {'a model' if answer['kind'] == 'model' else 'an array'}", hint)
    return answer


def model_of(path: Path) -> Path:
    """Return the path of the model, which may be in the named folder.

    Raises:
        BadParameter: The folder has no model, or several.
    """
    if not path.is_dir():
        return path
    models = sorted([*path.glob("*.onnx"), *path.glob(SAVED)])
    if len(models) != 1:
        raise BadParameter(f"{path}: {len(models) or 'no'} models in the folder", "name the model itself")
    return models[0]


def _part(server: Server, model: Path, place: str) -> str:
    """Upload a weight file that the model names; return its sha256."""
    file = model.parent / place
    if not file.resolve().is_relative_to(model.parent.resolve()) or not _names(model, place):
        raise BadParameter(
            f"the server asks for {place!r}, which {model.name} does not name", "is it the right server?"
        )
    if not file.is_file():
        raise BadParameter(f"{file} is missing: weights of {model.name} lie in it", "it belongs beside the model")
    return send(server, file, "part", part="true")["blob"]


def _names(model: Path, place: str) -> bool:
    """Whether the model's own bytes name a file. A SavedModel includes these folders."""
    if model.name == SAVED and place.startswith(("variables/", "assets/")):
        return True
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        weights = (
            f"{model.stem}.bin" if model.suffix.lower() == ".xml" else ""
        )  # the file that OpenVINO loads without being told
        return place == weights or content.find(place.encode()) >= 0
