"""Uploads over HTTP: stored and rejected files, and models on the Graph page."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import zipfile
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.conftest import FIXTURES
from tests.recordings import recording_path
from tests.server.sites import MakeSite, Site, make_site  # noqa: F401 - a fixture
from visualprof.server.api.jobs import JobErrors
from visualprof.server.api.uploads import UploadAnswer

pytestmark = pytest.mark.slow


@pytest.fixture
def empty(make_site: MakeSite) -> Site:  # noqa: F811
    return make_site()


def onnx_model(batch: str = "batch") -> bytes:
    tensor_value_info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])
    tensor = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", [tensor_value_info], [tensor])
    return helper.make_model(graph).SerializeToString()


def npy(values: np.ndarray[Any, Any]) -> bytes:
    held = BytesIO()
    np.save(held, values)
    return held.getvalue()


def send(site: Site, name: str, data: bytes, status: int = 201) -> Any:
    answer = site.client.post(f"/api/v1/uploads?name={quote(name)}", data=data)
    assert answer.status_code == status, answer.get_data(as_text=True)
    return answer.get_json()


def kept(site: Site) -> list[Path]:
    return sorted((site.folder / ".visualprof" / "blobs").iterdir())


def test_a_model_is_kept_and_described(empty: Site) -> None:
    answer = send(empty, "net.onnx", onnx_model())
    msgspec.convert(answer, UploadAnswer)
    assert answer["kind"] == "model"
    assert answer["model"]["inputs"] == [{"name": "x", "dtype": "float32", "dims": ["batch", 4]}]
    assert answer["model"]["dims"] == {"batch": 1}
    assert "onnxruntime" in answer["model"]["backends"]
    assert answer["array"] is None
    assert [p.name for p in kept(empty)] == [answer["blob"]]


def test_an_array_is_kept_and_described(empty: Site) -> None:
    answer = send(empty, "x.npy", npy(np.zeros((2, 4), np.float16)))
    assert answer["kind"] == "array"
    assert answer["array"] == {"dtype": "float16", "shape": [2, 4]}
    assert (answer["model"], answer["graph"]) == (None, None)


def test_the_same_content_again_is_kept_once_and_has_the_new_name(empty: Site) -> None:
    first, second = send(empty, "a.onnx", onnx_model()), send(empty, "b.onnx", onnx_model())
    assert first["blob"] == second["blob"]
    assert second["name"] == "b.onnx"
    assert len(kept(empty)) == 1


def test_an_uploaded_model_opens_on_the_graph_page(empty: Site) -> None:
    answer = send(empty, "net.onnx", onnx_model())
    (listed,) = empty.client.get("/api/v1/models").get_json()["models"]
    assert (listed["id"], listed["name"], listed["uploaded"]) == (answer["graph"], "net.onnx", True)
    graph = empty.client.get(f"/api/v1/graph?model={answer['graph']}").get_json()
    assert "Relu" in graph["nodes"]["type"]


def test_a_model_without_a_name_is_shown_by_its_file_name(empty: Site) -> None:
    answer = send(empty, "cnn.pt2", (FIXTURES / "graphs" / "torch_cnn.pt2").read_bytes())
    graph = empty.client.get(f"/api/v1/graph?model={answer['graph']}").get_json()
    assert graph["model"]["name"] == "cnn.pt2"


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("../../../etc/cron.d/evil.onnx", "evil.onnx"),
        ("..\\..\\evil.onnx", "evil.onnx"),
        ("/etc/passwd", "passwd.onnx"),
        ("<script>alert(1)</script>.onnx", "script>.onnx"),
        ("<img src=x onerror=alert(1)>.onnx", "<img src=x onerror=alert(1)>.onnx"),
        ("模型é.onnx", "模型é.onnx"),
        ("a\r\nSet-Cookie: x=1.onnx", "a__Set-Cookie: x=1.onnx"),
        (".hidden", "hidden.onnx"),
        ("x" * 5000 + ".onnx", "x" * 145 + ".onnx"),
    ],
)
def test_hostile_names_stay_names(empty: Site, given: str, safe: str) -> None:
    answer = send(empty, given, onnx_model())
    assert answer["name"] == safe
    assert [p.name for p in kept(empty)] == [answer["blob"]]
    assert empty.client.get(f"/api/v1/graph?model={answer['graph']}").status_code == 200


class Touch:
    """A pickle that makes a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.system, (f"touch '{self.path}'",)


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    held = BytesIO()
    with zipfile.ZipFile(held, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return held.getvalue()


def test_hostile_pickles_are_refused_never_run_and_not_kept(empty: Site, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    hostile = pickle.dumps(Touch(mark))
    objects = BytesIO()
    np.save(objects, np.array([Touch(mark)], dtype=object), allow_pickle=True)
    for name, data in {
        "model.pkl": hostile,
        "model.onnx": hostile,
        "weights.pt": zipped({"w/data.pkl": hostile, "w/data/0": b"1234"}),
        "x.npy": objects.getvalue(),
    }.items():
        answer = send(empty, name, data, 422)
        assert name in answer["error"]
        assert answer["hint"]
    assert not mark.exists()
    assert kept(empty) == []


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        (
            "bomb.pt",
            zipped({"m/code/__torch__/m.py": bytes(100 << 20)}, zipfile.ZIP_DEFLATED),
            "unpacks to 104,857,600 bytes",
        ),
        ("out.pt", zipped({"m/code/__torch__/m.py": b"", "../../evil": b""}), "leads out of it"),
        ("empty.onnx", b"", "empty"),
        ("notes.txt", b"some text\n" * 100, "neither a model nor an array"),
        ("cut.npy", npy(np.zeros(1000))[:-8], "8 of 8,000 bytes"),
        ("cut.onnx", onnx_model()[:-20], "cut.onnx"),
        ("<b>x</b>", b"\x00" * 100, "neither a model"),
    ],
    ids=["bomb", "out", "empty", "text", "cut array", "cut model", "zeros"],
)
def test_other_files_are_refused_by_name_and_not_kept(empty: Site, name: str, data: bytes, told: str) -> None:
    answer = send(empty, name, data, 422)
    assert told in answer["error"]
    assert "blob" not in json.dumps(answer)
    assert kept(empty) == []
    assert empty.client.get("/api/v1/models").get_json()["models"] == []


def test_a_refused_file_does_not_take_the_same_content_that_is_in_use_with_it(empty: Site) -> None:
    first = send(empty, "x.npy", npy(np.zeros(3)))
    send(empty, "y.npy", npy(np.zeros(3))[:-1], 422)
    assert [p.name for p in kept(empty)] == [first["blob"]]


def test_an_upload_without_a_name_is_refused(empty: Site) -> None:
    assert empty.client.post("/api/v1/uploads", data=b"x").status_code == 400


def test_a_read_only_server_keeps_nothing(make_site: MakeSite) -> None:  # noqa: F811
    site = make_site(read_only=True)
    assert site.client.post("/api/v1/uploads?name=a.onnx", data=onnx_model()).status_code == 403
    assert not (site.folder / ".visualprof").exists()


def test_another_sites_page_cannot_upload(empty: Site) -> None:
    answer = empty.client.post(
        "/api/v1/uploads?name=a.onnx", data=onnx_model(), headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert answer.status_code == 403


# jobs over uploads


def job(blob: str, **changes: Any) -> dict[str, Any]:
    return {
        "key": "k1",
        "model": {"blob": blob, "name": "net.onnx"},
        "specs": [{"id": "ort", "backend": "onnxruntime"}],
        "inputs": [{"name": "x", "dtype": "float32", "dims": ["batch", 4]}],
        **changes,
    }


def test_a_job_that_fits_is_checked_and_queued(empty: Site) -> None:
    wanted = job(send(empty, "net.onnx", onnx_model())["blob"], sweep={"dim": "batch", "values": [1, 2, 4]})
    checked = empty.client.post("/api/v1/jobs/check", json=wanted).get_json()
    assert (checked["errors"], checked["points"]) == ([], 3)
    assert [w["field"] for w in checked["warnings"]] == ["specs[0].backend"]
    answer = empty.client.post("/api/v1/jobs", json=wanted)
    assert answer.status_code == 201
    assert answer.get_json()["job"]["state"] == "waiting"
    assert answer.get_json()["job"]["graph"] == f"upload:{wanted['model']['blob']}"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"inputs": [{"name": "y", "dtype": "float32", "dims": ["batch", 4]}]}, "inputs"),
        ({"inputs": [{"name": "x", "dtype": "int64", "dims": ["batch", 4]}]}, "inputs[0].dtype"),
        ({"inputs": [{"name": "x", "dtype": "float32", "dims": ["batch", 5]}]}, "inputs[0].dims[1]"),
        ({"inputs": []}, "inputs"),
        ({"surprise": 1}, "surprise"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"model": {"blob": "0" * 64, "name": "net.onnx"}}, "model.blob"),
    ],
)
def test_a_wrong_job_is_refused_with_its_field_and_not_queued(empty: Site, changes: dict[str, Any], field: str) -> None:
    wanted = job(send(empty, "net.onnx", onnx_model())["blob"], **changes)
    answer = empty.client.post("/api/v1/jobs", json=wanted)
    assert answer.status_code == 400
    body = msgspec.convert(answer.get_json(), JobErrors)
    assert body.errors[0].field == field
    assert body.error.startswith(field)
    assert empty.client.get("/api/v1/jobs").get_json()["jobs"] == []


def test_an_array_of_the_wrong_type_is_refused_by_its_file(empty: Site) -> None:
    blob = send(empty, "net.onnx", onnx_model())["blob"]
    array = send(empty, "values.npy", npy(np.zeros((2, 4))))["blob"]
    inputs = [{"name": "x", "dtype": "float32", "dims": ["batch", 4], "fill": "file", "blob": array}]
    answer = empty.client.post("/api/v1/jobs", json=job(blob, inputs=inputs)).get_json()
    assert [(e["field"], e["error"]) for e in answer["errors"]] == [
        ("inputs[0].blob", "values.npy holds float64, the model wants float32")
    ]


def test_the_files_of_a_job_are_described_without_deleted_ones(empty: Site) -> None:
    model = send(empty, "net.onnx", onnx_model())
    array = send(empty, "x.npy", npy(np.zeros((2, 4), np.float32)))
    inputs = [{"name": "x", "dtype": "float32", "dims": ["batch", 4], "fill": "file", "blob": array["blob"]}]
    submitted = empty.client.post("/api/v1/jobs", json=job(model["blob"], inputs=inputs)).get_json()["job"]["id"]
    assert empty.client.get(f"/api/v1/jobs/{submitted}/files").get_json()["files"] == [model, array]
    with closing(sqlite3.connect(empty.folder / ".visualprof" / "jobs.sqlite")) as database, database:
        database.execute("DELETE FROM blobs WHERE sha256 = ?", (array["blob"],))
    assert empty.client.get(f"/api/v1/jobs/{submitted}/files").get_json()["files"] == [model]
    assert empty.client.get("/api/v1/jobs/none/files").status_code == 404


def test_the_same_content_under_another_name_keeps_both(empty: Site) -> None:
    first, second = send(empty, "first.onnx", onnx_model()), send(empty, "second.onnx", onnx_model())
    assert first["blob"] == second["blob"]
    assert (first["name"], second["name"]) == ("first.onnx", "second.onnx")
    (model,) = empty.client.get("/api/v1/models").get_json()["models"]
    assert model["file"] == "first.onnx, second.onnx"
    for name in ("first.onnx", "second.onnx"):
        draft = {"model": first["blob"], "model_name": name}
        drafted = empty.client.post("/api/v1/jobs/draft", json=draft).get_json()
        assert drafted["request"]["model"]["name"] == name, "a job has the name of its own file"


def test_a_model_that_only_a_runtime_reads_is_not_on_the_graph_page(empty: Site) -> None:
    sent = send(empty, "lenet.tm", recording_path("models/megengine/lenet.tm").read_bytes())
    assert (sent["model"]["format"], sent["model"]["backends"]) == ("megengine_traced", ["megengine"])
    assert sent["graph"] is None
    assert empty.client.get("/api/v1/models").get_json()["models"] == []
    (draft,) = empty.client.post("/api/v1/jobs/draft", json={"model": sent["blob"]}).get_json()["warnings"]
    assert draft["error"] == "no registered agent has megengine for cpu"


def test_a_known_file_needs_not_be_sent_again(empty: Site) -> None:
    sent = send(empty, "first.onnx", onnx_model())
    asked = {"blob": sent["blob"], "name": "second.onnx"}
    answer = empty.client.post("/api/v1/uploads/known", json=asked)
    assert answer.get_json() == {"files": [{**sent, "name": "second.onnx"}]}
    (model,) = empty.client.get("/api/v1/models").get_json()["models"]
    assert model["file"] == "first.onnx, second.onnx"
    for blob in ("0" * 64, "../secret", ""):
        assert empty.client.post("/api/v1/uploads/known", json={**asked, "blob": blob}).get_json() == {"files": []}
    kept(empty)[0].unlink()
    assert empty.client.post("/api/v1/uploads/known", json=asked).get_json() == {"files": []}, "somebody tidied up"
