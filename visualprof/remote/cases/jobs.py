"""Create the job request for a case with one configuration on one machine."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from visualprof.remote.cases import Vendor
from visualprof.remote.cases.bundle import SUFFIX
from visualprof.remote.cases.folder import Case
from visualprof.remote.protocol import CaseRef, ModelRef, Profile, Request, Spec

FRAMEWORKS = {"pytorch": "torch"}  # frameworks whose backend has another name


def chosen_compiler(case: Case, vendor: Vendor, command: Mapping[str, Any]) -> str | None:
    """Return the compiler that the configuration layers select; `None` for validation only."""
    return {**case.case, **case.vendors.get(vendor.name, {}), **command}.get("compiler")


def case_job(
    case: Case,
    blob: str,
    vendor: Vendor,
    *,
    framework: str,
    command: Mapping[str, Any],
    agent: str,
    device: str,
    timeout_s: float,
    step_timeouts: Mapping[str, float],
) -> Request:
    """Return the job of a case. Its backend is the one whose runtime the engine needs.

    Args:
        case: The case.
        blob: sha256 of the bundle.
        vendor: The platform.
        framework: Name of the framework.
        command: Settings of the command line.
        agent: Id of the machine.
        device: The device.
        timeout_s: Time limit of the job.
        step_timeouts: Time limits of the steps, as in `CaseRef`.
    """
    compiler = chosen_compiler(case, vendor, command)
    engine = vendor.engines.get(str(compiler))
    backend = (engine and engine.backend) or compiler or FRAMEWORKS.get(framework, framework)
    return Request(
        f"case-{uuid.uuid4().hex}",
        ModelRef(blob, f"{case.name}{SUFFIX}"),
        [Spec(str(compiler or framework), str(backend), agent=agent, device=device)],
        name=f"{case.name} {compiler or 'validation'}",
        profile=Profile(0),
        timeout_s=timeout_s,
        case=CaseRef(
            case.name,
            vendor.name,
            framework,
            {key: json.dumps(value) for key, value in command.items()},
            dict(step_timeouts),
        ),
    )
