"""Delivers a result to the server: uploads the files and finishes the task."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from visualprof.messages import msg
from visualprof.remote.agent.errors import CANCELLED, LeaseLost, Outcome, StopRequested, failed_outcome
from visualprof.remote.agent.link import transfer
from visualprof.remote.agent.link.client import Client, RequestRejected, retry
from visualprof.remote.protocol import Lease, TaskFailure

MAX_FINISH_ATTEMPTS = 2


@dataclass
class Delivery:
    """Delivers the result of one task.

    Attributes:
        client: HTTP client of the server.
        lease: Lease of the task.
        result: The result folder.
        warnings: Warnings of the result.
        stop: Set when the work must stop.
        leave: Set when the report must stop as well.
    """

    client: Client
    lease: Lease
    result: Path
    warnings: list[str]
    stop: threading.Event
    leave: threading.Event

    def send(self, outcome: Outcome) -> str:
        """Upload the result and finish the task; return how it ended, in words. A canceled upload cancels the task.

        Raises:
            LeaseLost: The server no longer knows the lease.
            StopRequested: The agent is shutting down.
        """
        try:
            return self._send(outcome)
        except TaskFailure as failure:
            return self._finish(failed_outcome(failure), [])
        except StopRequested:
            if self.leave.is_set():
                raise
            return self._finish(CANCELLED, [])

    def _send(self, outcome: Outcome) -> str:
        rejection = ""
        for _ in range(MAX_FINISH_ATTEMPTS):
            names = self._upload(outcome)
            try:
                return self._finish(outcome, names)
            except RequestRejected as error:
                if error.status == 507:
                    raise TaskFailure(
                        "disk_full", msg("agent.servers_disk_full", f"the server's disk is full: {error.error}")
                    ) from None
                rejection = error.error  # 422: a file arrived damaged. The next announcement says which.
        raise TaskFailure(
            "upload_failed",
            msg("agent.result_not_accepted", f"the server did not accept the result, sent twice: {rejection}"),
        )

    def _upload(self, outcome: Outcome) -> list[str]:
        files, left_out = transfer.collect_files(self.result)
        if left_out:
            names = ", ".join(left_out[:10])
            self.warnings.append(
                msg(
                    "agent.left_out_result_because", f"left out of the result because they are not plain files: {names}"
                )
            )
        stop = self.leave if outcome == CANCELLED else self.stop
        transfer.upload_result(self.client, self.lease, files, stop)
        return [file.name for file in files]

    def _finish(self, outcome: Outcome, files: list[str]) -> str:
        """Finish the task at the server.

        Raises:
            LeaseLost: The server no longer knows the lease.
            StopRequested: The agent is shutting down.
            RequestRejected: 422: a file is missing or differs. 507: the server's disk is full.
        """
        body = {**outcome, "warnings": self.warnings, "files": files}
        try:
            retry(lambda: self.client.post(self.lease.path("finish"), body), self.leave)
        except RequestRejected as error:
            if error.status in (422, 507) and files:
                raise
            raise LeaseLost(str(error)) from None
        return ": ".join(filter(None, (outcome["reason"] or outcome["state"], outcome["error"])))
