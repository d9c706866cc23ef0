"""Messages between the server and its agents. Standard library only, because a runtime's interpreter also imports it.

A job is a model with its inputs; it has one task per spec. An agent leases a task and reports it under a lease token. A
task that is leased again has a higher `attempt` and another token. Times are int ns, sizes int bytes, `*_s` seconds.

job.py      what a job requests
machine.py  what an agent offers
task.py     what an agent works on, and how that ends
decode.py   decoding all of these from JSON
"""

from visualprof.remote.protocol.decode import build
from visualprof.remote.protocol.job import (
    DEFAULT_PERCENTILE,
    DTYPES,
    INPUT_NAME_MAX,
    PRIORITIES,
    SCENARIOS,
    SEARCH_STEPS,
    SPEC_ID,
    Advise,
    CaseRef,
    Input,
    Load,
    Measure,
    Mlperf,
    ModelRef,
    Objective,
    Part,
    Precision,
    Priority,
    Profile,
    Request,
    Search,
    SearchObjective,
    Spec,
    Sweep,
    cpu_numbers,
)
from visualprof.remote.protocol.machine import (
    Capabilities,
    Gpu,
    Node,
    NodeState,
    Offer,
    Platform,
    Runtime,
    agent_unsupported_reason,
    version_key,
)
from visualprof.remote.protocol.task import (
    FINAL,
    UNTIMED_PHASES,
    File,
    Intervals,
    Lease,
    Phase,
    Reason,
    State,
    TaskFailure,
)

PROTOCOL = 1
JOB_SCHEMA = "visualprof.job/1"
MONITOR_SCHEMA = "visualprof.monitor/1"

__all__ = [
    "DEFAULT_PERCENTILE",
    "DTYPES",
    "FINAL",
    "INPUT_NAME_MAX",
    "JOB_SCHEMA",
    "MONITOR_SCHEMA",
    "PRIORITIES",
    "PROTOCOL",
    "SCENARIOS",
    "SEARCH_STEPS",
    "SPEC_ID",
    "UNTIMED_PHASES",
    "Advise",
    "Capabilities",
    "CaseRef",
    "File",
    "Gpu",
    "Input",
    "Intervals",
    "Lease",
    "Load",
    "Measure",
    "Mlperf",
    "ModelRef",
    "Node",
    "NodeState",
    "Objective",
    "Offer",
    "Part",
    "Phase",
    "Platform",
    "Precision",
    "Priority",
    "Profile",
    "Reason",
    "Request",
    "Runtime",
    "Search",
    "SearchObjective",
    "Spec",
    "State",
    "Sweep",
    "TaskFailure",
    "agent_unsupported_reason",
    "build",
    "cpu_numbers",
    "version_key",
]
