"""Translate names of Ascend's profiler and runtime to the terms of the trace model."""

from __future__ import annotations

import json
import re

from visualprof.reader.communication import is_communication_call
from visualprof.reader.lanes import device_category
from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Category

# Fields that hold no value have the largest unsigned number of 32 bits.
NO_NUMBER = 2**32 - 1
_CUBE_CORES = frozenset({"AI_CORE", "MIX_AIC"})
_VECTOR_CORES = frozenset({"AI_VECTOR_CORE", "MIX_AIV"})
# Types of tasks in `trace_view.json` and in the table TASK. The scheduler waits, records and reports in other tasks.
_COMPUTE_TYPE = pattern(r"^(?:AI_|MIX_|DSA|KERNEL)")
_COPY_TYPE = pattern(r"^(?:PCIE_DMA|SDMA_SQE|MEMCPY)")
_WAIT_TYPE = pattern(r"^(?:EVENT|NOTIFY)[ _]WAIT", re.IGNORECASE)
_OTHER_TYPE = pattern(
    r"^(?:EVENT_RECORD|PLACE_HOLDER|PROFILING|NOTIFY[ _]RECORD|WRITE[ _]VALUE|SDMA$|STARS_COMMON|MODEL_|FFTS|WAIT_VALUE"
    r"|MEM_WRITE|MEM_WAIT|CMO|CONDITION|FUSION|STREAM_|TASK_TIMEOUT|CALLBACK|LABEL)",
    re.IGNORECASE,
)
_OPTIMIZER = pattern(r"^Optimizer\.(?:step|zero_grad)#")
_NPU_COLLECTIVE = pattern(r"^(?:npu::.*reduce|c10d::|Hccl[A-Z])")
_DATALOADER = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")
# `hcom_allReduce__586_2_1`: operation, last digits of the hash of its group, number in the group, model
_COLLECTIVE = pattern(r"^hcom_(?P<operation>[A-Za-z]+?)__(?P<group>\d{1,20})_(?P<number>\d{1,9})(?:_\d+)?$")
_TYPES = {
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BFP16": "bfloat16",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
}
_GROUP_MULTIPLIERS = (29, 131)
# Links that carry no data between devices
NO_LINKS = frozenset({"", "ON_CHIP", "INVALID_TYPE", "INVAILD_TYPE", "N/A", "LOCAL", "RESERVED"})
_SHAPE_SEPARATOR = pattern(r";[\r\n]*")


def host_category(name: str) -> Category:
    """Return the category of an operator of torch, by its name."""
    if name.startswith("ProfilerStep"):
        return Category.STEP
    if name.startswith(_DATALOADER):
        return Category.DATALOADER
    if _NPU_COLLECTIVE.match(name) or is_communication_call(name):
        return Category.COMM
    return Category.OPTIMIZER if _OPTIMIZER.match(name) else Category.OP


def python_category(name: str) -> Category:
    """Return the category of a Python call, by its name."""
    return Category.MODULE if name.startswith("nn.Module: ") else Category.PYTHON


def call_category(name: str) -> Category:
    """Return the category of a call of CANN, by its name with or without its level."""
    return Category.SYNC if name.rpartition("@")[2].startswith("aclrtSynchronize") else Category.RUNTIME


def task_category(task_type: str, name: str) -> Category:
    """Return the category of a task of the device, by its type; by its name if the type is unknown."""
    if _COPY_TYPE.match(task_type):
        return Category.MEMCPY
    if _COMPUTE_TYPE.match(task_type):
        return Category.KERNEL
    if _WAIT_TYPE.match(task_type):
        return Category.SYNC
    return Category.OTHER if _OTHER_TYPE.match(task_type) else device_category(name)


def is_known_task(task_type: str) -> bool:
    """Return whether the type of a task is known."""
    return any(types.match(task_type) for types in (_COPY_TYPE, _COMPUTE_TYPE, _WAIT_TYPE, _OTHER_TYPE))


def core_prefix(core: str) -> str:
    """Return the prefix of the metrics of the cores on which a kernel mainly runs; "" for kernels of other cores."""
    return "aic_" if core in _CUBE_CORES else "aiv_" if core in _VECTOR_CORES else ""


def torch_shapes(text: str) -> str:
    r"""Return shapes as torch writes them: `[[4096], [32, 9216], []]` for `4096;\r\n32,9216;\r\n`."""
    if not text:
        return ""
    sizes = [[int(size) for size in part.split(",") if size.isdigit()] for part in _SHAPE_SEPARATOR.split(text)]
    return json.dumps(sizes)


def torch_types(text: str) -> str:
    r"""Return types of inputs as torch writes them: `["float", "Scalar"]` for `float;\r\nScalar`."""
    return json.dumps(_SHAPE_SEPARATOR.split(text)) if text else ""


def collective_parts(name: str) -> tuple[str, str, int]:
    """Return operation, last digits of the group's hash, and number in the group, as `allReduce`, `586`, 2.

    For names of another form, the parts are "", "" and -1.
    """
    parts = _COLLECTIVE.match(name)
    return (parts["operation"], parts["group"], int(parts["number"])) if parts else ("", "", -1)


def element_type(name: str) -> str:
    """Return the common name of an element type, as in other formats; "" if unknown."""
    return _TYPES.get(name, "")


def group_hash(group: str) -> str:
    """Return the number that identifies a group in communication files.

    It joins two polynomial hashes of 32 bits, with the multipliers 29 and 131.
    """
    halves = [0, 0]
    for code in map(ord, group):
        halves = [(half * factor + code) & NO_NUMBER for half, factor in zip(halves, _GROUP_MULTIPLIERS, strict=True)]
    return str(halves[0] << 32 | halves[1])
