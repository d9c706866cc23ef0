"""Cases as jobs over HTTP: one that ships, one that was sent as a zip, and what is no case."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.remote.case_sites import numpy_case
from tests.remote.queue_sites import capabilities, member, runtime
from tests.server_settings import server_settings
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.remote.cases.bundle import unpack
from visualprof.server.app import create_app
from visualprof.server.job_service import JobService

from sites import InlineParser  # isort: skip


class Site:
    """A server with one machine that has ONNX Runtime and OpenVINO."""

    def __init__(self, folder: Path) -> None:
        (folder / "runs").mkdir()
        cache = Cache(folder / "cache")
        self._logdir = LogDirectory([folder / "runs"], InlineParser(cache), cache, events=False, settle_s=0)
        self.remote = JobService(self._logdir.roots[0])
        self.client = create_app(self._logdir, server_settings(dist=folder / "dist"), self.remote).test_client()
        agent_capabilities = capabilities(runtimes=[runtime(), runtime("openvino")])
        self.agent = member(self.remote.open(), "lab", known=agent_capabilities).id

    def post(self, path: str, status: int, **body: Any) -> Any:
        answer = self.client.post(f"/api/v1/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.get_json()

    def send(self, name: str, files: dict[str, bytes]) -> dict[str, str]:
        """Uploads a zip."""
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            for place, content in files.items():
                archive.writestr(place, content)
        answer = self.client.post(f"/api/v1/uploads?part=true&name={name}", data=data.getvalue())
        assert answer.status_code == 201, answer.text
        return {"blob": answer.get_json()["blob"], "name": name}

    def close(self) -> None:
        self.remote.close()
        self._logdir.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    new_site = Site(tmp_path)
    yield new_site
    new_site.close()


def folder_of(case: Path, below: str = "") -> dict[str, bytes]:
    """The files of a case by their places in a zip."""
    return {
        f"{below}{path.relative_to(case).as_posix()}": path.read_bytes() for path in case.rglob("*") if path.is_file()
    }


def test_a_case_that_ships_becomes_a_job_for_each_compiler_on_each_machine(site: Site, tmp_path: Path) -> None:
    wish = {"case": "digits", "agents": [site.agent], "compilers": ["onnxruntime", "openvino"]}
    jobs = site.post("cases/jobs", 201, **wish, settings={"repeat": "2"}, step_timeout_s=60)["jobs"]
    answers = [site.client.get(f"/api/v1/jobs/{job}").get_json() for job in jobs]
    requests = [answer["request"] for answer in answers]
    assert [request["specs"][0]["backend"] for request in requests] == ["onnxruntime", "openvino"]
    assert [request["case"] for request in requests] == [
        {
            "name": "digits",
            "vendor": "cpu",
            "framework": "pytorch",
            "step_timeouts": {"": 60},
            "settings": {"repeat": "2", "compiler": f'"{compiler}"'},
        }
        for compiler in wish["compilers"]
    ]
    assert [answer["job"]["case"] for answer in answers] == ["digits", "digits"]
    bundle = site.remote.open().blobs.path(requests[0]["model"]["blob"])
    assert unpack(bundle, tmp_path / "out")["name"] == "digits"
    assert (tmp_path / "out" / "data" / "weights.npz").is_file()
    again = site.post("cases/jobs", 201, case="digits", agents=[site.agent], compilers=["openvino"])["jobs"]
    assert len(site.client.get("/api/v1/jobs").get_json()["jobs"]) == 3, again


@pytest.mark.parametrize(
    ("framework", "settings", "backend"),
    [
        ("megengine", {}, "megengine"),
        ("tensorflow", {}, "litert"),
        ("pytorch", {}, "onnxruntime"),
        ("megengine", {"compiler": "onnxruntime"}, "onnxruntime"),
    ],
)
def test_the_default_compiler_reads_what_the_framework_exports(
    site: Site, framework: str, settings: dict[str, str], backend: str
) -> None:
    runtimes = [runtime(), runtime("litert"), runtime("megengine")]
    agent = member(site.remote.open(), "board", known=capabilities(runtimes=runtimes)).id
    (job,) = site.post("cases/jobs", 201, case="digits", framework=framework, settings=settings, agents=[agent])["jobs"]
    request = site.client.get(f"/api/v1/jobs/{job}").get_json()["request"]
    assert request["specs"][0]["backend"] == backend


@pytest.mark.slow
@pytest.mark.parametrize("below", ["", "net/"])
def test_the_zip_of_a_folder_is_described_and_submitted(site: Site, tmp_path: Path, below: str) -> None:
    files = folder_of(numpy_case(tmp_path / "net"), below) | {"__MACOSX/._net": b"x"}
    sent = site.send("net.zip", files)
    response = site.post("cases/sent", 200, **sent)
    assert response == {"name": "net", "title": "", "frameworks": ["numpy"], "framework": "numpy", "compiler": "plain"}
    jobs = site.post("cases/jobs", 201, sent=sent, agents=[site.agent], compilers=["onnxruntime"])["jobs"]
    assert site.client.get(f"/api/v1/jobs/{jobs[0]}").get_json()["request"]["case"]["name"] == "net"


def test_invalid_cases_are_rejected_without_a_job(site: Site, tmp_path: Path) -> None:
    empty = site.send("net.zip", {"net/readme.txt": b"hello"})
    assert "configurations.yaml" in site.post("cases/sent", 400, **empty)["error"]
    evil = site.send("evil.zip", {"../../evil.py": b"x"})
    assert "outside of the folder" in site.post("cases/sent", 400, **evil)["error"]
    (tmp_path / "text").write_bytes(b"no zip at all")
    blob = site.client.post("/api/v1/uploads?part=true&name=a.zip", data=b"no zip at all").get_json()["blob"]
    assert "cannot be read" in site.post("cases/sent", 400, blob=blob, name="a.zip")["error"]
    site.post("cases/sent", 404, blob="0" * 64, name="a.zip")
    site.post("cases/jobs", 404, case="lunch", agents=[site.agent])
    site.post("cases/jobs", 400, case="digits", agents=[])
    assert "no vendor" in site.post("cases/jobs", 400, case="digits", agents=[site.agent], vendor="me")["error"]
    wrong = site.post("cases/jobs", 400, case="digits", agents=[site.agent, "nobody"], compilers=["openvino"])
    assert "nobody" in wrong["error"] or "agent" in wrong["error"]
    wrong = site.post("cases/jobs", 400, case="digits", framework="jax", agents=[site.agent])
    assert wrong["error"] == "digits has megengine, pytorch, tensorflow"
    assert site.client.get("/api/v1/jobs").get_json()["jobs"] == []
