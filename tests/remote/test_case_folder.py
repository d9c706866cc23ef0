"""Cases on disk: their own folder, FlagPerf's tree, and the bundle that travels."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.remote.case_sites import numpy_case
from visualprof.remote.cases.bundle import pack, unpack
from visualprof.remote.cases.folder import find_case, parse_value, read_case, required_packages
from visualprof.remote.cases.requirements import (
    imported_packages,
    missing_requirements,
    parse_requirements,
    version_satisfies,
)
from visualprof.remote.protocol import TaskFailure

DESCRIPTION = json.dumps(
    {"name": "a", "frameworks": ["numpy"], "case": {}, "parameters": {}, "vendors": {}, "requirements": {}}
)


def flagperf(root: Path, name: str = "net") -> Path:
    """A case apart, as FlagPerf keeps them."""
    files = {
        f"configs/{name}/configurations.yaml": "batch_size: 256\nflops: 4.12e9\ncompiler: tensorrt\n",
        f"configs/{name}/parameters.yaml": "",
        f"configs/{name}/vendor_config/nvidia_configurations.yaml": "trt_tmp_path: net.trt\n",
        f"benchmarks/{name}/pytorch/__init__.py": "",
        f"benchmarks/{name}/pytorch/requirements.txt": "torchvision\n",
        f"benchmarks/{name}/pytorch/nvidia_requirements.txt": "torch_tensorrt\n",
        "inference_engine/nvidia/tensorrt.py": "class InferModel: ...\n",
    }
    for place, text in files.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text, "utf-8")
    return root


def test_both_layouts_give_the_same_places(tmp_path: Path) -> None:
    ours = read_case(numpy_case(tmp_path / "ours"))
    assert (ours.name, ours.frameworks, ours.case["batch_size"]) == ("ours", ("numpy",), 4)
    assert ours.files["benchmarks/ours/numpy/model.py"] == tmp_path / "ours/numpy/model.py"
    assert ours.files["inference_engine/cpu/plain.py"] == tmp_path / "ours/inference_engine/cpu/plain.py"
    theirs = flagperf(tmp_path / "inference")
    for named in (
        str(theirs),
        f"{theirs}:net",
        str(theirs / "benchmarks/net"),
        str(theirs / "configs/net"),
        str(tmp_path),
    ):
        case = find_case(named)
        assert (case.name, case.frameworks, case.parameters) == ("net", ("pytorch",), {})
        assert case.vendors == {"nvidia": {"trt_tmp_path": "net.trt"}}
        assert {"benchmarks/net/pytorch/__init__.py", "inference_engine/nvidia/tensorrt.py"} < set(case.files)
    assert required_packages(case.requirements, "nvidia") == ["torch_tensorrt"]
    assert required_packages(case.requirements, "cpu") == ["torchvision"]


def test_a_tree_of_several_cases_wants_a_name(tmp_path: Path) -> None:
    flagperf(flagperf(tmp_path, "one"), "two")
    with pytest.raises(TaskFailure, match="several cases"):
        find_case(str(tmp_path))
    assert find_case(f"{tmp_path}:two").name == "two"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- 1\n- 2", "not a mapping of keys"),
        ("a: [1", "while parsing"),
        ("a: !!python/object:os.x {}", "could not determine"),
        (
            (
                "a: &x [1,1,1,1]\nb: &y [*x,*x,*x,*x]\nc: &z [*y,*y,*y,*y]\n"
                "d: [*z,*z,*z,*z]\ne: [*z,*z,*z,*z]\nf: *z\ng: *z\n"
            ),
            "not a mapping of keys",
        ),
        ("a: 2020-01-01", "not a mapping of keys"),
    ],
)
def test_yaml_is_keys_and_plain_values(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TaskFailure, match=words):
        read_case(numpy_case(tmp_path / "net", parameters=text))


def test_a_bundle_carries_all_of_a_case_and_its_data(tmp_path: Path) -> None:
    folder = numpy_case(tmp_path / "net")
    (folder / "data").mkdir()
    (folder / "data" / "rows.txt").write_text("1 2 3")
    case = read_case(folder)
    assert not any("rows.txt" in place for place in case.files)  # locally it stays where it is
    pack(case, tmp_path / "one.zip")
    pack(case, tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    (tmp_path / "out").mkdir()
    files = unpack(tmp_path / "one.zip", tmp_path / "out")
    assert files == json.loads(json.dumps(case.description()))
    assert (tmp_path / "out/data/rows.txt").read_text() == "1 2 3"
    for place, file in case.files.items():
        assert (tmp_path / "out" / place).read_bytes() == file.read_bytes()


def test_links_do_not_travel(tmp_path: Path) -> None:
    folder = numpy_case(tmp_path / "net")
    (folder / "numpy" / "secret.py").symlink_to("/etc/passwd")
    with pytest.raises(TaskFailure, match=r"secret.py is a link"):
        read_case(folder)


def _bundle(path: Path, *names: str, link: bool = False, content: bytes = b"x") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("case.json", DESCRIPTION)
        for name in names:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o120777 if link else 0o100644) << 16
            archive.writestr(info, content)
    return path


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "a\\b", "C:/evil", "a//b", "a\nb"])
def test_names_that_lead_out_of_a_bundle_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(TaskFailure, match="outside of the folder"):
        unpack(_bundle(tmp_path / "b.zip", name), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    assert not (tmp_path / "evil").exists()


def test_links_bombs_and_doubles_in_a_bundle_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(TaskFailure, match="not a regular file"):
        unpack(_bundle(tmp_path / "link.zip", "a", link=True, content=b"/etc/passwd"), out)
    with pytest.raises(TaskFailure, match="bomb"):
        unpack(_bundle(tmp_path / "bomb.zip", "a", content=bytes(70 << 20)), out)
    with pytest.raises(TaskFailure, match="same name"):
        unpack(_bundle(tmp_path / "double.zip", "a/b", "A/B"), out)
    (tmp_path / "none.zip").write_bytes(b"PK no zip")
    with pytest.raises(TaskFailure, match="cannot be read"):
        unpack(tmp_path / "none.zip", out)
    assert list(out.iterdir()) == []


def test_requirements_are_compared_without_importing() -> None:
    assert parse_requirements("torch>=2 # why\n\n--index-url x\n-r other.txt\nnumpy\n") == ["torch>=2", "numpy"]
    assert list(missing_requirements(["numpy>=1.0", "pytest", "no-such-package>=2", "numpy<1"])) == [
        "no-such-package >=2",
        f"numpy <1 ({__import__('numpy').__version__} is installed)",
    ]


def test_top_level_imports_of_framework_code_are_requirements(tmp_path: Path) -> None:
    code = tmp_path / "pytorch"
    code.mkdir()
    (tmp_path / "shared.py").touch()
    (code / "model.py").write_text("import os, torch.nn\nfrom . import dataloader\nimport shared, cv2\n")
    (code / "dataloader.py").write_text(
        "from torchvision import models\nfrom loguru import logger\nfrom benchmarks.net.pytorch import *\n"
        "try:\n    import apex\nexcept ImportError:\n    apex = None\ndef later():\n    import tqdm\n"
    )
    (code / "broken.py").write_text("def (")
    assert imported_packages(tmp_path, "pytorch") == ["opencv-python", "torch", "torchvision"]


@pytest.mark.parametrize(
    ("version", "wanted", "holds"),
    [
        ("8.6.1", ">=8,<10", True),
        ("10.0.1", ">=8,<10", False),
        ("2.13.0+cpu", "==2.13.0", True),
        ("1.9", "<1.10", True),
        ("1.3.2", "==1.3.*", True),
        ("1.4", "==1.3.*", False),
        ("1.3.2", "~=1.3.1", True),
        ("1.4.0", "~=1.3.1", False),
        ("2", "!=2", False),
        ("2.0", "==2", True),
        ("3", "", True),
    ],
)
def test_versions_within_clauses(version: str, wanted: str, holds: bool) -> None:
    assert version_satisfies(version, wanted) is holds


def test_typed_values_equal_those_of_the_files() -> None:
    typed = [parse_value(text) for text in ("8", "true", "null", "openvino", "1.5", "[1, 2]", "a: [")]
    assert typed == [8, True, None, "openvino", 1.5, [1, 2], "a: ["]
