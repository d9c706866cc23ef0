"""A few random kills; many of them by hand: python -m tests.remote.chaos."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.postgres import Postgres
from tests.remote import chaos, fleet_chaos, replicas
from tests.swift import Swift

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_every_acknowledged_job_ends_with_all_its_points(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    process = chaos.run(tmp_path, 4, 1, patience_s=60)
    assert process["jobs"] >= 3


def test_servers_that_share_a_database_lose_and_show_nothing(tmp_path: Path, postgres: Postgres) -> None:
    process = replicas.run(tmp_path, postgres, 8, 3)
    assert process["jobs"] >= 24
    assert min(process[kind] for kind in ("server", "servers", "database", "agent")) >= 1


def test_a_server_over_a_file_loses_and_shows_nothing(tmp_path: Path) -> None:
    process = replicas.run(tmp_path, None, 4, 1)
    assert process["jobs"] >= 12
    assert min(process[kind] for kind in ("server", "agent")) >= 1


def test_servers_with_runs_in_a_bucket_lose_and_leak_nothing(tmp_path: Path, postgres: Postgres, swift: Swift) -> None:
    process = replicas.run(tmp_path, postgres, 8, 7, swift)
    assert process["jobs"] >= 24
    assert min(process[kind] for kind in ("server", "database", "agent", "store")) >= 1


def test_a_fleet_reports_every_attempt_lost_with_its_workers_or_nodes(tmp_path: Path) -> None:
    for package in ("ray", "onnxruntime", "onnx"):
        if not find_spec(package):
            pytest.skip(f"{package} is not installed")
    process = fleet_chaos.run(tmp_path, 5, 1)
    assert process["jobs"] >= 4
    assert process["worker"] + process["node"] >= 2
