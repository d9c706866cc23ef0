"""Read a case from disk, from its own folder or a FlagPerf tree. Its code is never run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from visualprof.remote.cases.content_errors import content_errors
from visualprof.remote.cases.layers import is_valid_key
from visualprof.remote.cases.plain_yaml import MAX_VALUES, UnsupportedYaml, parse_setting, parse_yaml
from visualprof.remote.cases.requirements import parse_requirements
from visualprof.remote.protocol import TaskFailure

LIBRARY = Path(__file__).parent / "library"
CONFIGURATIONS, PARAMETERS, DESCRIPTION = "configurations.yaml", "parameters.yaml", "case.yaml"
MAX_YAML_BYTES, MAX_TEXT_BYTES = 1 << 18, 1 << 20  # of one file of settings or requirements, and of all of them
MAX_FILES, MAX_BYTES = 5000, 2 << 30
SKIPPED_FOLDERS = ("__pycache__",)
FUNCTIONS = ("build_dataloader", "create_model", "evaluator", "export_model", "model_forward", "engine_forward")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case.

    Attributes:
        name: Name of the case.
        frameworks: Frameworks that have code.
        files: Source file by its path in the bundle (paths as in FlagPerf's tree).
        case: The layer of configurations.yaml.
        parameters: The layer of parameters.yaml.
        vendors: The layers of the platforms.
        title: Title.
        framework: The default framework, "" if there are several without a default.
        data_dir: Folder of the case's own data; `None` without.
        data: Required paths below data_dir, including weights.
        requirements: Packages: "" for every platform, `+NAME` additions for a platform, `NAME` replacements for it.
    """

    name: str
    frameworks: tuple[str, ...]
    files: dict[str, Path]
    case: dict[str, Any]
    parameters: dict[str, Any]
    vendors: dict[str, dict[str, Any]]
    title: str = ""
    framework: str = ""
    data_dir: Path | None = None
    data: tuple[str, ...] = ()
    requirements: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])

    def description(self) -> dict[str, Any]:
        """Return the description for the child, which reads no YAML."""
        same = ("name", "frameworks", "case", "parameters", "vendors", "title", "data", "requirements")
        return {name: getattr(self, name) for name in same}


def required_packages(requirements: dict[str, list[str]], vendor: str) -> list[str]:
    """Return the packages that a case requires on a platform."""
    return [*requirements.get(vendor, requirements.get("", [])), *requirements.get(f"+{vendor}", [])]


def shipped_cases() -> dict[str, Path]:
    """Return the folders of the shipped cases by name."""
    folders = sorted(LIBRARY.iterdir()) if LIBRARY.is_dir() else []
    return {folder.name: folder for folder in folders if (folder / CONFIGURATIONS).is_file()}


def find_case(reference: str) -> Case:
    """Return a case by its folder, as `ROOT:CASE` in a FlagPerf tree, or by the name of a shipped case.

    Raises:
        TaskFailure: input_error: There is no such case, or it is invalid.
    """
    with content_errors(
        f"{reference[:80]!r} is not a case", "give the path of a folder, or the name of a shipped case"
    ):
        path, _, name = (
            reference.rpartition(":") if ":" in reference and not Path(reference).exists() else (reference, "", "")
        )
        if not Path(path).is_dir() and path in shipped_cases():
            return read_case(shipped_cases()[path])
        return read_case(Path(path), name)


def read_case(path: Path, name: str = "") -> Case:
    """Read the case of a folder.

    Args:
        path: The folder.
        name: The case in a FlagPerf tree with several cases.

    Raises:
        TaskFailure: The folder is not a valid case.
    """
    if not path.is_dir():
        hint = f"shipped: {', '.join(shipped_cases()) or 'none'}; or give the path of a folder"
        raise TaskFailure("input_error", f"{path}: no such case", hint)
    path = path.resolve()
    configs, code, engines = _places(path, name)
    name = code.name
    if not is_valid_key(name.replace("-", "_")):
        raise TaskFailure("input_error", f"{name!r} is not a valid name of a case", "use letters, digits and _")
    frameworks = tuple(sorted(folder.name for folder in code.iterdir() if _holds_code(folder)))
    if not frameworks:
        raise TaskFailure("input_error", f"{code}: no folder has {', '.join(FUNCTIONS[:4])}", "for example pytorch/")
    texts = _TextFiles()
    about = texts.yaml(code / DESCRIPTION)
    data = [*_texts(about, "data"), *_texts(about, "weights")]
    data_folder = code / "data"
    return Case(
        name=name,
        frameworks=frameworks,
        files=dict(_files(name, code, engines)),
        case=texts.yaml(configs / CONFIGURATIONS),
        parameters=texts.yaml(configs / PARAMETERS),
        vendors=dict(_vendors(texts, configs / "vendor_config")),
        title=str(about.get("title") or ""),
        framework=str(about.get("framework") or (frameworks[0] if len(frameworks) == 1 else "")),
        data_dir=data_folder if data_folder.is_dir() else None,
        data=tuple(data),
        requirements=dict(_requirements(texts, code, frameworks)),
    )


def _places(path: Path, name: str) -> tuple[Path, Path, Path]:
    """Return the folders of configurations, code and engines."""
    if (path / CONFIGURATIONS).is_file() and any(_holds_code(folder) for folder in path.iterdir()):
        return path, path, path / "inference_engine"
    if path.parent.name in ("benchmarks", "configs"):
        path, name = path.parent.parent, path.name
    root = path / "inference" if (path / "inference" / "configs").is_dir() else path
    cases = sorted(file.parent.name for file in root.glob(f"configs/*/{CONFIGURATIONS}"))
    name = name or (cases[0] if len(cases) == 1 else "")
    if name in cases and (root / "benchmarks" / name).is_dir():
        return root / "configs" / name, root / "benchmarks" / name, root / "inference_engine"
    if cases:
        raise TaskFailure("input_error", f"{path} has several cases", f"one of {root}:{{{','.join(cases)}}}")
    raise TaskFailure(
        "input_error", f"{path} is not a case: it has no {CONFIGURATIONS}", "create one with visualprof case new"
    )


def _holds_code(folder: Path) -> bool:
    return folder.is_dir() and ((folder / "dataloader.py").is_file() or (folder / "__init__.py").is_file())


def _files(name: str, code: Path, engines: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of the case and of its engines.

    Raises:
        TaskFailure: There are too many files, too large files, or links.
    """
    total = 0
    pairs = [(f"benchmarks/{name}", code)] + ([("inference_engine", engines)] if engines.is_dir() else [])
    for count, (place, file) in enumerate(_walk(pairs)):
        if file.is_symlink():
            raise TaskFailure("input_error", f"{file} is a link", "a case has its own files; name data by --data")
        if not file.is_file():
            raise TaskFailure("input_error", f"{file} is not a regular file", "remove devices, pipes and sockets")
        total += file.stat().st_size
        if count >= MAX_FILES or total > MAX_BYTES:
            limits = f"{MAX_FILES:,} files and {MAX_BYTES >> 30} GiB"
            raise TaskFailure(
                "input_error", f"{code} has more than {limits}", "keep data elsewhere and name it by --data"
            )
        yield place, file


def _walk(pairs: list[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    for place, folder in pairs:
        for entry in sorted(folder.iterdir()):
            below = f"{place}/{entry.name}"
            if entry.name in SKIPPED_FOLDERS or entry.name.startswith("."):
                continue
            if entry.is_dir() and not entry.is_symlink():
                if below.count("/") != 2 or entry.name not in ("data", "inference_engine"):
                    yield from _walk([(below, entry)])
            else:
                yield below, entry


def _vendors(texts: _TextFiles, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the layers of platforms. FlagPerf writes `nvidia_configurations.yaml`, visualprof `nvidia.yaml`."""
    for file in sorted(folder.glob("*.yaml")) if folder.is_dir() else []:
        yield file.stem.removesuffix("_configurations"), texts.yaml(file)


def _requirements(texts: _TextFiles, code: Path, frameworks: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Yield requirements of `requirements.txt`, `requirements-VENDOR.txt` and `FRAMEWORK/VENDOR_requirements.txt`."""
    for folder in (code, *(code / framework for framework in frameworks)):
        for file in sorted(folder.glob("*requirements*.txt")):
            if not file.is_file():
                continue
            before, _, after = file.stem.partition("requirements")
            vendor = f"+{after.strip('-_')}" if after else before.rstrip("-_")
            yield vendor, parse_requirements(texts.read(file))


class _TextFiles:
    """Reads the YAML and requirement files of one case, which together have a limited size."""

    def __init__(self) -> None:
        self._remaining_bytes = MAX_TEXT_BYTES

    def read(self, file: Path) -> str:
        """Return the text of a file.

        Raises:
            TaskFailure: The file is too large.
        """
        size = file.stat().st_size
        self._remaining_bytes -= size
        if size > MAX_YAML_BYTES or self._remaining_bytes < 0:
            limits = f"{MAX_YAML_BYTES >> 10} KiB, or all such files of the case over {MAX_TEXT_BYTES >> 10} KiB"
            raise TaskFailure(
                "input_error", f"{file} has over {limits}", "these files hold settings and package names, not data"
            )
        return file.read_text("utf-8", "replace" if file.suffix == ".txt" else "strict")

    def yaml(self, file: Path) -> dict[str, Any]:
        """Return the keys of a YAML file, none without a file.

        Raises:
            TaskFailure: The file is not flat YAML.
        """
        if not file.is_file():
            return {}
        hint = f"keys with texts, numbers, true, false, null, and lists of them; at most {MAX_VALUES} in all"
        with content_errors(str(file), "is it YAML in UTF-8?"):
            text = self.read(file)
            try:
                content = parse_yaml(text)
            except UnsupportedYaml as error:
                raise TaskFailure("input_error", f"{file} is not a mapping of keys to values: {error}", hint) from None
        if content is not None and not isinstance(content, dict):
            raise TaskFailure("input_error", f"{file} is not a mapping of keys to values", hint)
        return json.loads(json.dumps(content or {}))


def parse_value(text: str) -> Any:
    """Return the typed value of a setting as YAML reads it: `8`, `true`, `null`, `openvino`.

    Raises:
        TaskFailure: input_error: The value is too large, or has a type that is not supported.
    """
    try:
        return parse_setting(text)
    except UnsupportedYaml as error:
        hint = "a text, a number, true, false, null, or a short list of them; put other values in quotes"
        raise TaskFailure("input_error", f"the setting {text[:40]!r} cannot be used: {error}", hint) from None


def _texts(about: dict[str, Any], key: str) -> list[str]:
    value: object = about.get(key) or []
    return [str(item) for item in cast("list[object]", value)] if isinstance(value, list) else [str(value)]
