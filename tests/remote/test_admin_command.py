"""Health, rules and backups in the shell."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path

import pytest
from queue_sites import served

from visualprof.cli import main


def test_the_command_reports_health_rules_and_waiting_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logdir = tmp_path / "runs"
    with served(logdir) as server:
        server.job_service.open()
        code = main(["admin", "health", "--server", server.url, "--json"])
        document = json.loads(capsys.readouterr().out)
        assert code == (1 if document["warnings"] else 0)
        assert main(["admin", "health", "--server", server.url]) == code
        assert "database   SQLite" in capsys.readouterr().out
        copy = tmp_path / "copy.sqlite"
        assert main(["admin", "--logdir", str(logdir), "backup", str(copy)]) == 0
        assert server.job_service.open().database.last_backup_ns() == pytest.approx(time.time_ns(), abs=60e9)
        assert sqlite3.connect(copy).execute("SELECT count(*) FROM audit").fetchone() == (0,)
    words = ["admin", "--logdir", str(logdir), "retention"]
    assert main([*words, "jobs", "30"]) == 0
    assert "would remove now: 0 jobs" in capsys.readouterr().out
    assert main([*words, "jobs", "30", "--yes"]) == 0
    assert "jobs        30 days" in capsys.readouterr().out
    assert main([*words]) == 0
    assert "jobs        30 days" in capsys.readouterr().out
    assert main([*words, "jobs", "never", "--yes"]) == 0
    assert "jobs          never" in capsys.readouterr().out
    assert main([*words, "audit", "3", "--yes"]) != 0
    assert main(["admin", "health", "--server", "http://127.0.0.1:9"]) != 0


def test_a_backup_needs_an_existing_folder_and_is_readable_by_its_owner_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".visualprof").mkdir()
    sqlite3.connect(tmp_path / ".visualprof" / "jobs.sqlite").close()
    (tmp_path / ".visualprof" / "jobs.sqlite").touch()
    command = ["admin", "--logdir", str(tmp_path), "backup"]
    assert main([*command, str(tmp_path / "missing" / "copy.sqlite")]) == 2
    assert "existing folder" in capsys.readouterr().err
    mask = os.umask(0)
    try:
        assert main([*command, str(tmp_path / "copy.sqlite")]) == 0
    finally:
        os.umask(mask)
    assert (tmp_path / "copy.sqlite").stat().st_mode & 0o777 == 0o600
