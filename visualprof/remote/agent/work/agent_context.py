"""State that the tasks of an agent share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.machine.probe import Machine
from visualprof.remote.agent.machine.processes import default_memory_bytes
from visualprof.remote.agent.registration import Registration
from visualprof.remote.agent.state import Journal, Settings, StateFolder
from visualprof.remote.agent.work.device_scheduler import DeviceScheduler


@dataclass
class AgentContext:
    """State that the tasks of an agent share.

    Attributes:
        settings: Settings of the agent.
        state: Its state folder.
        journal: Journal of its tasks.
        registration: Its registration at the server.
        nvml: GPU readings.
        on_change: Makes the agent send a heartbeat soon.
        machine: Current description of the machine.
        scheduler: Orders the tasks of each device.
    """

    settings: Settings
    state: StateFolder
    journal: Journal
    registration: Registration
    nvml: Nvml
    on_change: Callable[[], None]
    machine: Machine
    scheduler: DeviceScheduler = field(default_factory=DeviceScheduler)

    @property
    def memory_bytes(self) -> int:
        """Memory limit of a task."""
        return self.settings.memory_bytes or default_memory_bytes()
