"""Submit jobs of benchmark cases: a shipped or an uploaded case, on chosen machines with chosen compilers."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from visualprof.errors import BadParameter, NotFound
from visualprof.messages import msg
from visualprof.remote.cases import Vendor, all_vendors
from visualprof.remote.cases.bundle import SUFFIX, pack
from visualprof.remote.cases.folder import Case, parse_value, read_case, shipped_cases
from visualprof.remote.cases.jobs import case_job
from visualprof.remote.protocol import Request, TaskFailure
from visualprof.remote.queue.check.cases import read_case_upload
from visualprof.remote.queue.check.job import InvalidRequest, check_request
from visualprof.remote.queue.uploads import save_local_files
from visualprof.server.api.cases import ShippedCase, shipped_case_row
from visualprof.server.identity import current_principal
from visualprof.server.job_service import JobServices
from visualprof.server.routes import READ_ONLY_ERROR, Resource, mutation
from visualprof.server.services import Services
from visualprof.server.user_slots import UserSlots
from visualprof.server.visible import ScopedQueueView

MAX_JOBS = 64
MAX_READS_PER_USER = 2  # concurrent reads of uploaded cases per user
MAX_SETTINGS_CHARS = 16_384  # total length of the settings of a request
_BUSY_ERRORS = {429: "other cases of yours are being read", 503: "too many cases are being read"}
CHANGE_ERRORS = {
    **READ_ONLY_ERROR,
    400: "the case is invalid, or nothing can run it",
    404: "there is no such case or file",
}


class UploadedCase(msgspec.Struct, forbid_unknown_fields=True):
    """A zip file of a case's folder, uploaded as a part.

    Attributes:
        blob: sha256 of the zip file.
        name: Name of the zip file.
    """

    blob: str
    name: str


class CaseRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A case to run: one job per compiler and machine.

    Attributes:
        agents: Ids of the machines.
        case: Name of a shipped case. "": use `sent`.
        sent: An uploaded case.
        framework: Framework to run. "": the case's only or default framework.
        vendor: Name of the accelerator vendor.
        compilers: Compilers to run with. Empty: the compiler that the framework needs, otherwise the one in
            the case's configuration.
        settings: Settings as typed text. They override every configuration file.
        timeout_s: Time limit of each job.
        step_timeout_s: Time limit of each step, or null for no limit.
    """

    agents: Annotated[list[str], Meta(min_length=1, max_length=MAX_JOBS)]
    case: str = ""
    sent: UploadedCase | None = None
    framework: str = ""
    vendor: str = "cpu"
    compilers: Annotated[list[str], Meta(max_length=MAX_JOBS)] = []
    settings: Annotated[dict[str, str], Meta(max_length=MAX_JOBS)] = {}
    timeout_s: float = 3600.0
    step_timeout_s: float | None = None


class CaseJobs(msgspec.Struct):
    """Ids of the submitted jobs."""

    jobs: list[str]


class CaseSubmissions(Resource):
    """The routes that submit benchmark cases."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._queue_view = ScopedQueueView(self._job_service, self._visible)
        self._reads = UserSlots(MAX_READS_PER_USER)

    @mutation("POST", "/cases/sent", errors={**CHANGE_ERRORS, **_BUSY_ERRORS})
    def sent(self, body: UploadedCase) -> ShippedCase:
        """Describe an uploaded case without running its code."""
        self._job_service.require_writable()
        with tempfile.TemporaryDirectory(prefix="visualprof-case-") as folder:
            return shipped_case_row(self._read(self._job_service.open(), body, Path(folder)))

    @mutation(
        "POST",
        "/cases/jobs",
        status=201,
        errors={**CHANGE_ERRORS, **_BUSY_ERRORS, 429: "a quota is used up, or other cases of yours are being read"},
    )
    def submit(self, body: CaseRequest) -> CaseJobs:
        """Submit one job per compiler and machine."""
        self._job_service.require_writable()
        queue, vendor = self._job_service.open(), _vendor(body)
        settings = _parse_settings(body.settings)
        with tempfile.TemporaryDirectory(prefix="visualprof-case-") as folder:
            bundle = Path(folder, "bundle")
            if body.sent is not None:
                case = self._read(queue, body.sent, Path(folder), bundle)
            else:
                case = _shipped_case(body.case)
                pack(case, bundle)
            requests = list(_requests(body, case, vendor, settings, self._save_bundle(queue, case, bundle)))
        for request in requests:  # all of them, or none
            errors, _ = check_request(request, self._queue_view)
            if errors:
                raise InvalidRequest(errors)
        return CaseJobs([queue.jobs.submit(request, current_principal().user)[0] for request in requests])

    def _read(self, queue: JobServices, sent: UploadedCase, folder: Path, bundle: Path | None = None) -> Case:
        """Return the case in an uploaded zip, which a separate process reads.

        Args:
            queue: The services of the queue.
            sent: The upload.
            folder: An empty folder for the extracted files.
            bundle: Where to write the bundle for agents; not written by default.
        """
        if not self._visible.has_upload(sent.blob):
            raise NotFound(
                msg("server.file_not_here", "this file is not here"),
                msg("server.upload_zip_first", "upload the zip first"),
            )
        with self._reads.hold(current_principal().user):
            return read_case_upload(queue.blobs.path(sent.blob), sent.name, folder / "files", bundle)

    def _save_bundle(self, queue: JobServices, case: Case, bundle: Path) -> str:
        """Store the bundle of a case and return its sha256."""
        name = f"{case.name}{SUFFIX}"
        (upload,) = save_local_files(self._job_service, {name: bundle}, part=True)
        if (user := current_principal().user) is not None:
            queue.blobs.add_holder(user, {upload.blob: (name, upload.size)})
        return upload.blob


def _shipped_case(name: str) -> Case:
    if name not in shipped_cases():
        raise NotFound(
            msg("server.no_case_ships", f"no case {name[:80]!r} ships"),
            msg("server.there", f"there is {', '.join(shipped_cases())}"),
        )
    return read_case(shipped_cases()[name])


def _parse_settings(settings: dict[str, str]) -> dict[str, Any]:
    """Return typed values of settings.

    Raises:
        BadParameter: A value is not supported, or the settings are too long.
    """
    if sum(len(key) + len(text) for key, text in settings.items()) > MAX_SETTINGS_CHARS:
        raise BadParameter(
            msg("server.settings_too_long", f"the settings have over {MAX_SETTINGS_CHARS:,} characters"),
            msg("server.put_settings_into_case", "put long values into a file of the case"),
        )
    try:
        return {key: parse_value(text) for key, text in settings.items()}
    except TaskFailure as failure:
        raise BadParameter(failure.error, failure.hint) from None


def _vendor(body: CaseRequest) -> Vendor:
    vendors = all_vendors()
    if body.vendor not in vendors:
        raise BadParameter(
            msg("server.there_no_vendor", f"there is no vendor {body.vendor[:80]!r}"),
            msg("server.there", f"there is {', '.join(vendors)}"),
        )
    return vendors[body.vendor]


def _requests(body: CaseRequest, case: Case, vendor: Vendor, settings: dict[str, Any], blob: str) -> Generator[Request]:
    """Yield one job request per compiler and machine."""
    framework = body.framework or case.framework
    if framework not in case.frameworks:
        raise BadParameter(
            f"{case.name} has {', '.join(case.frameworks)}",
            msg("server.choose_one_frameworks", "choose a framework from this list"),
        )
    if len(body.agents) * len(body.compilers) > MAX_JOBS:
        raise BadParameter(
            msg("server.more_than_jobs", f"these are more than {MAX_JOBS} jobs"),
            msg("server.choose_fewer_compilers_machines", "choose fewer compilers or machines"),
        )
    device = "cpu" if vendor.device == "cpu" else f"{vendor.device}:0"
    limits = {} if body.step_timeout_s is None else {"": body.step_timeout_s}
    compiler = vendor.framework_compilers.get(framework)
    default = {"compiler": compiler} if compiler else {}
    commands = [{**settings, "compiler": compiler} for compiler in body.compilers] or [{**default, **settings}]
    for command, agent in itertools.product(commands, body.agents):
        yield case_job(
            case,
            blob,
            vendor,
            framework=framework,
            command=command,
            agent=agent,
            device=device,
            timeout_s=body.timeout_s,
            step_timeouts=limits,
        )
