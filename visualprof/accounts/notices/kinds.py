"""What people are told of, and in which languages. It needs no database."""

from __future__ import annotations

from typing import Literal

Kind = Literal["job_finished", "job_failed", "machine_lost", "trial"]
Language = Literal["en", "zh"]
