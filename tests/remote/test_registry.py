"""Registered models: versions, addresses, and the files that stay for them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from queue_sites import MODEL, opened, request, upload
from sqlalchemy import update

from visualprof.errors import BadParameter, NotFound
from visualprof.remote.protocol import Input, ModelRef, Part, Sweep
from visualprof.remote.queue.errors import Conflict
from visualprof.remote.queue.model_registration import (
    configuration_from_request,
    draft_from_version,
    register_model,
    store_local_files,
)
from visualprof.remote.queue.service import JobService
from visualprof.remote.queue.store.model_records import (
    Configuration,
    Lineage,
    Origin,
    RemovalImpact,
    Requester,
    content_sha256,
)
from visualprof.remote.queue.store.quotas import Quota, set_quota
from visualprof.remote.queue.store.tables import blobs
from visualprof.remote.queue.tasks.maintenance import remove_leftovers

pytestmark = pytest.mark.both_databases

NET = ModelRef(hashlib.sha256(MODEL).hexdigest(), "net.onnx")
ANN, BOB = Requester("ann", "ann"), Requester("bob", "bob")


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[JobService]:
    with opened(tmp_path / "runs") as remote:
        yield remote


def add(remote: JobService, name: str = "net", model: ModelRef = NET, by: Requester = Requester(), **more: Any) -> int:  # noqa: B008
    more.setdefault("source", Origin("upload"))
    return register_model(remote, by, name, model, **more)[1].number


def other(remote: JobService, content: bytes = b"another", name: str = "net.onnx") -> ModelRef:
    return ModelRef(upload(remote, content, name), name)


def test_version_numbers_increase_and_are_never_reused(remote: JobService) -> None:
    registry = remote.open().registry
    numbers = [add(remote), add(remote, model=other(remote)), add(remote)]
    assert numbers == [1, 2, 1]  # the same content is the same version
    (model,) = registry.list_visible(None)
    registry.delete(model.id, 2, Requester())
    assert add(remote, model=other(remote)) == 3
    first = registry.resolve("net/1", Requester())[1]
    assert (first.facts.format, first.facts.parameters, first.facts.operators) == ("onnx", 12, {"Gemm": 2})
    assert (first.sha256, first.size_bytes, first.ref) == (NET.blob, len(MODEL), NET)


def test_addresses(remote: JobService) -> None:
    registry = remote.open().registry
    add(remote)
    add(remote, model=other(remote))
    model = registry.list_visible(None)[0].id
    registry.set_alias(model, "production", 1, Requester())
    numbers = {
        a: registry.resolve(a, Requester())[1].number for a in ("net", "NET", "net/1", "net/2", "net@production")
    }
    assert numbers == {"net": 2, "NET": 2, "net/1": 1, "net/2": 2, "net@production": 1}
    registry.set_alias(model, "production", 2, Requester())
    assert registry.resolve("net@production", Requester())[1].number == 2
    for address in ("net/3", "net@staging", "other", "other/1"):
        with pytest.raises(NotFound):
            registry.resolve(address, Requester())
    for address in ("", "net/x", "net/1/2", "@production"):
        with pytest.raises(BadParameter):
            registry.resolve(address, Requester())
    registry.delete(model, 2, Requester())  # the alias goes with the version
    assert registry.get(model, None).aliases == {}


def test_a_model_of_several_files_is_hashed_as_a_whole(remote: JobService) -> None:
    """As `sha256sum` lists the parts by path, below the line of the model."""
    parts = [Part("w/b.bin", "b" * 64), Part("w/a.bin", "a" * 64)]
    text = f"{NET.blob}  \n{'a' * 64}  w/a.bin\n{'b' * 64}  w/b.bin\n"
    assert content_sha256(ModelRef(NET.blob, "x.onnx", parts)) == hashlib.sha256(text.encode()).hexdigest()
    assert content_sha256(ModelRef(NET.blob, "x.onnx", parts[::-1])) == hashlib.sha256(text.encode()).hexdigest()
    weights = [remote.open().save_upload("w.bin", io.BytesIO(data).read)[0] for data in (b"one", b"two")]
    for blob in weights:
        remote.open().blobs.save_inspection(blob, "w.bin", {"kind": "part", "size_bytes": 3, "name": "w.bin"})
    numbers = [add(remote, model=ModelRef(NET.blob, "net.onnx", [Part("w.bin", blob)])) for blob in weights]
    assert numbers == [1, 2]
    assert remote.open().registry.resolve("net/2", Requester())[1].size_bytes == len(MODEL) + 3


def test_an_incomplete_model_is_not_registered(remote: JobService) -> None:
    queue = remote.open()
    with pytest.raises(NotFound, match="is not here"):
        add(remote, model=ModelRef("0" * 64, "x.onnx"))
    for path in ("../w.bin", "/w.bin", "net.onnx", "w" * 400):
        with pytest.raises(BadParameter, match=r"model\.parts"):
            add(remote, model=ModelRef(NET.blob, NET.name, [Part(path, NET.blob)]))
    array = queue.save_upload("x.npy", io.BytesIO(b"array").read)[0]
    queue.blobs.save_inspection(array, "x.npy", {"kind": "array", "dtype": "float32", "shape": [1]})
    with pytest.raises(BadParameter, match="no model"):
        add(remote, model=ModelRef(array, "x.npy"))
    for name in ("", "a/b", "a@b", "a\nb", "x" * 201):
        with pytest.raises(BadParameter):
            add(remote, name)
    assert queue.registry.list_visible(None) == []


def test_files_stay_for_a_version_and_go_with_it(remote: JobService) -> None:
    """Whatever becomes of the job, and however old the upload is."""
    queue = remote.open()
    add(remote)
    job, _ = queue.jobs.submit(request())
    queue.jobs.cancel(job)
    assert queue.deleter.delete(job).size_bytes == 0
    with queue.database.write() as connection:
        connection.execute(update(blobs).values(kept_ns=1))
    remove_leftovers(queue.database, queue.store, queue.results.partial_folder)
    path = queue.blobs.path(NET.blob)
    assert path.read_bytes() == MODEL
    queue.registry.delete(queue.registry.list_visible(None)[0].id, None, Requester())
    assert (path.exists(), queue.blobs.inspection(NET.blob), queue.registry.list_visible(None)) == (False, None, [])


def test_files_that_a_job_names_outlive_the_version(remote: JobService) -> None:
    queue = remote.open()
    add(remote)
    job, _ = queue.jobs.submit(request())
    model = queue.registry.list_visible(None)[0].id
    with pytest.raises(Conflict, match=f"not ended use it: {job}"):
        queue.registry.delete(model, 1, Requester())
    assert queue.registry.delete(model, 1, Requester(), force=True) == RemovalImpact([job], [], [])
    assert queue.blobs.path(NET.blob).read_bytes() == MODEL
    assert queue.jobs.get(job).state == "waiting"


def test_the_uploader_holds_the_bytes_of_a_version_until_it_is_deleted(remote: JobService) -> None:
    queue = remote.open()
    with queue.database.write() as connection:
        set_quota(connection, "ann", Quota(upload_bytes=len(MODEL)))
    queue.blobs.add_holder("ann", {NET.blob: ("net.onnx", len(MODEL))})
    add(remote, by=ANN)
    job, _ = queue.jobs.submit(request(), "ann")
    queue.jobs.cancel(job)
    queue.deleter.delete(job)
    assert queue.quotas.get("ann")[1].upload_bytes == len(MODEL)
    queue.registry.delete(queue.registry.list_visible(None)[0].id, None, Requester("ann"))
    assert queue.quotas.get("ann")[1].upload_bytes == 0


def test_children_of_a_version_are_listed(remote: JobService) -> None:
    registry = remote.open().registry
    add(remote)
    add(remote, model=other(remote), lineage=Lineage(NET.blob, "ort-fp16", {"keep_io": "1"}, {"onnx": "1.19"}, "box"))
    add(remote, "copy")
    ids = {model.name: model.id for model in registry.list_visible(None)}
    assert registry.removal_impact(ids["net"], 1, None).children == []  # copy/1 has the same content
    registry.delete(ids["copy"], None, Requester())
    assert registry.removal_impact(ids["net"], 1, None) == RemovalImpact([], ["net/2"], [])
    assert registry.removal_impact(ids["net"], None, None).children == []
    registry.delete(ids["net"], 1, Requester())
    left = registry.resolve("net", Requester())[1].lineage
    assert left == Lineage(NET.blob, "ort-fp16", {"keep_io": "1"}, {"onnx": "1.19"}, "box")


def test_only_notes_and_configuration_of_a_version_change(remote: JobService) -> None:
    registry = remote.open().registry
    add(remote)
    before = registry.resolve("net", Requester())[1]
    wanted = Configuration(before.configuration.inputs, "n", 1, 64)
    registry.update_version(before.model, 1, Requester(), notes="good", configuration=wanted)
    model, after = registry.resolve("net", Requester())
    assert (after.notes, after.configuration, after.sha256) == ("good", wanted, before.sha256)
    draft = draft_from_version(model, after)
    assert (draft.model, draft.name, draft.sweep, draft.sizes) == (NET.blob, "net/1", "n", "1:64")
    assert draft.inputs
    assert [(i.name, i.dtype, i.dims) for i in draft.inputs] == [("x", "float32", "n, 3")]
    changed = registry.update(before.model, Requester(), name="better", tags=["vision", "vision", " cnn "], notes="x")
    assert (changed.name, changed.tags, changed.notes) == ("better", ["vision", "cnn"], "x")


def test_a_job_releases_its_files() -> None:
    asked = request(inputs=[Input("x", "float32", ["n", 3])], sweep=Sweep("n", [4, 1, 16]), dims={"seq": 8})
    configuration = configuration_from_request(asked)
    assert (configuration.min_batch, configuration.max_batch, configuration.dims) == (1, 16, {"seq": 8})
    assert configuration.inputs[0].dims == ["n", 3]


def test_a_name_is_taken_only_among_visible_models(remote: JobService) -> None:
    """People without accounts in the database see nothing of others': each may have a `net` of their own."""
    registry = remote.open().registry
    assert [add(remote, by=ANN), add(remote, by=BOB)] == [1, 1]
    assert len({model.owner for model in registry.list_visible(None)}) == 2
    with pytest.raises(Conflict, match="2 models are called"):
        registry.resolve("net", Requester("root", None))
    assert registry.resolve("net", Requester("bob", None))[0].owner == "bob"
    own_model = next(model.id for model in registry.list_visible(None) if model.owner == "ann")
    with pytest.raises(NotFound):
        registry.delete(own_model, None, BOB)


def small(folder: Path) -> Path:
    """y = xW + b in float32 with W of 3 x 4 and b of 4, saved beside its weights."""
    weights = [
        onnx.numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in (("w", (3, 4)), ("b", (4,)))
    ]
    io = [onnx.helper.make_tensor_value_info(n, 1, ["batch", size]) for n, size in (("x", 3), ("y", 4))]
    nodes = [onnx.helper.make_node("Gemm", ["x", "w", "b"], ["h"]), onnx.helper.make_node("Relu", ["h"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "g", io[:1], io[1:], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "small.onnx"
    onnx.save_model(
        model, path, save_as_external_data=True, location="small.bin", size_threshold=0, convert_attribute=False
    )
    return path


@pytest.mark.slow
def test_files_of_this_machine_become_a_version(remote: JobService, tmp_path: Path) -> None:
    """12 weights and 4 biases: 16 parameters in 64 bytes, two operators."""
    path = small(tmp_path)
    with pytest.raises(BadParameter, match=r"small\.bin is missing"):
        add(remote, "small", store_local_files(remote, None, {"small.onnx": path}))
    ref = store_local_files(remote, "ann", {"small.onnx": path, "small.bin": path.with_name("small.bin")})
    candidate = Origin("job", job="j", candidate="fp16")
    _, version, new = register_model(remote, Requester(), "small", ref, source=candidate, lineage=Lineage(NET.blob))
    assert (new, version.facts.parameters, version.facts.operators) == (True, 16, {"Gemm": 1, "Relu": 1})
    assert [(f.path, f.size_bytes) for f in version.files][1:] == [("small.bin", 64)]
    assert (version.source, version.ref) == (candidate, ref)
    assert [(i.name, i.dtype, i.dims) for i in version.configuration.inputs] == [("x", "float32", ["batch", 3])]
    size = sum(file.stat().st_size for file in (path, path.with_name("small.bin")))
    assert remote.open().quotas.get("ann")[1].upload_bytes == version.size_bytes == size


@pytest.mark.slow
def test_files_stored_before_are_counted_on_registration(remote: JobService, tmp_path: Path) -> None:
    queue, path = remote.open(), small(tmp_path)
    ref = store_local_files(remote, None, {"small.onnx": path, "small.bin": path.with_name("small.bin")})
    inspection = queue.blobs.inspection(ref.blob) or {}
    queue.blobs.save_inspection(
        ref.blob, "small.onnx", {k: v for k, v in inspection.items() if k not in ("parameters", "operators")}
    )
    assert register_model(remote, Requester(), "small", ref, source=Origin())[1].facts.parameters == 16
