"""Recognize communication by the names of kernels, calls and ranges: one rule for all formats.

The kernel's own name has priority. If this name does not show what the kernel does, the operator or range around the
kernel's launch decides (`is_surrounding_communication`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from visualprof.reader.patterns import pattern

# Libraries that only communicate: NCCL and those of other vendors, libraries of remote memory, and expert dispatch.
_LIBRARIES = (
    r"nccl|rccl|hccl|oneccl|msccl|flagcx|(?:nv|roc|i)shmem|userbuffers|quick_?reduce|quick_all_?reduce"
    # short names with no letter before them, so that they are not part of a word
    r"|(?<![a-z])(?:[mcblextpsd]|ix|bk|cn|uc)ccl|(?<![a-z])(?:cncl|bkcl|hcom_|c10d::|symm_mem|symmetric_memory)"
    r"|(?<![a-z])(?:deep_?ep|pplx|mori|iris)::(?!.*get_dispatch_layout)"
    # DeepEP without its namespace; `get_dispatch_layout` only computes and does not communicate
    r"|(?<![a-z])(?:inter|intra)node(?:_ll)?::(?!get_dispatch_layout)"
)
# Words of collectives in names of kernels, operators and ranges. Reductions within a thread block are not collectives.
_COLLECTIVES = (
    r"(?<!block)(?<!block_)(?<!warp)(?<!warp_)(?<!group)(?<!cta)all[-_]?reduce|all[-_]?gather|reduce[-_]?scatter(?!_?nd)"
    r"|(?<![a-z])all[-_]?(?:to|2)[-_]?all|alltoallv?|a2a_?(?:dispatch|combine)|collective[-_]?(?:permute|broadcast)"
    r"|cross_device_(?:reduce|store|load)|multimem_|(?:one|two)[-_]?shot[-_]?(?:all)?[-_]?reduce|lamport"
    r"|send[-_]?recv(?![a-z])|remote[-_]?(?:send|recv)|(?:put|wait)_signal|ep(?:dispatch|combine)[a-z]*(?:node|kernel)"
    r"|moe[-_]?(?:distribute|comm|a2a|all)[-_]?(?:dispatch|combine|kernel|to)|CollectiveComm"
    r"|^%?(?:send|recv)(?:-start|-done)?(?:\.\d+)?$"
)
_KERNEL = pattern(f"{_LIBRARIES}|{_COLLECTIVES}", re.IGNORECASE)
# Matrix products. A kernel that also has the name of a collective computes and communicates: `gemm_all_reduce_fused`.
_PRODUCT = pattern(r"gemm|mat_?mul|(?<![a-z])mm(?![a-z])|(?<![a-z])(?:ag|rs|ar)_mm", re.IGNORECASE)
_FUSED = pattern(r"(?<![a-z])(?:ag|all_?gather)_?gemm|gemm_?(?:rs|ar|a2a)(?![a-z])", re.IGNORECASE)
# Names of computation kernels. The operator or range around their launch does not matter.
_COMPUTATION = pattern(
    r"gemm|gemv|mat_?mul|cutlass|cublas|cudnn|conv|attention|attn|softmax|norm|elementwise|(?<![a-z])at::|cub::|thrust"
    r"|cat_?array|copy|cast|fill|memset|transpose|permute|topk|sort|scan|index|embedding|reduce_kernel|splitk|quant"
    r"|multi_tensor_apply|adam|triton_(?:poi|red|per)_|fused_",
    re.IGNORECASE,
)
# Operators and ranges of the libraries: `nccl:all_reduce`, `c10d::allreduce_`, `ncclAllReduce`, `HcclAllreduce`.
_LIBRARY_CALL = pattern(
    r"^(?:(?:n|r|h|x|m|c|e|l|ix|one)ccl|cncl|bkcl|flagcx|gloo|mpi|ucc|c10d):|^record_param_comms$"
    r"|^(?:p?(?:nccl|rccl|mccl|xccl|hccl)|cncl|bkcl|flagcx|nvshmem|rocshmem)(?:x_|_|[A-Z])|^Hccl[A-Z]|^hcom_"
)
# Operators of frameworks that name them without a namespace: Paddle and MegEngine.
_OPERATOR = pattern(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|^c_|broadcast_op|barrier|p_(send|recv)|(send|recv)_v2"
    r"|AllReduce|AllGather|ReduceScatter|RemoteSend|RemoteRecv|CollectiveComm|[nr]ccl|hccl|cncl"
)
# Operators and ranges around a launch of communication kernels. Those that match `_PREPARATION` only prepare
# communication or wait for it, so their kernels do not communicate.
_AROUND = pattern(
    f"(?:{_LIBRARIES}|{_COLLECTIVES}|(?<![a-z])(?:isend|irecv|send|recv|broadcast)_?$|(?<![a-z])ep_?(?:dispatch|combine))",
    re.IGNORECASE,
)
_PREPARATION = pattern(
    r"gemm|mat_?mul|(?<![a-z])mm(?![a-z])|copy|wait|prepare|layout|view|split|concat|backward|forward|optimizer|step",
    re.IGNORECASE,
)


# Calls that return before the transfer, which a device executes later; and calls that transfer on the host.
_DEVICE_LIBRARY_CALL = pattern(r"^(?:(?:n|r|h|x|m|c|e|l|ix|one)ccl|cncl|bkcl|flagcx):", re.IGNORECASE)
_HOST_LIBRARY_CALL = pattern(r"^(?:gloo|mpi|ucc):", re.IGNORECASE)


def returns_before_transfer(name: str, has_devices: bool) -> bool:
    """Return whether a communication call returns before its transfer, because a kernel executes the transfer.

    Args:
        name: Name of the call: `nccl:all_reduce`, `record_param_comms`.
        has_devices: Whether the trace has work on devices, which decides for a call of an unknown library.
    """
    return bool(_DEVICE_LIBRARY_CALL.match(name)) or (has_devices and not _HOST_LIBRARY_CALL.match(name))


@lru_cache(1 << 14)
def is_communication_kernel(name: str) -> bool:
    """Return whether a kernel only communicates, according to its name."""
    return bool(_KERNEL.search(name)) and not computes_and_communicates(name)


@lru_cache(1 << 14)
def computes_and_communicates(name: str) -> bool:
    """Return whether a kernel both multiplies matrices and communicates, according to its name: `gemm_all_reduce`."""
    return bool(_FUSED.search(name) or (_PRODUCT.search(name) and _KERNEL.search(name)))


def is_computation_kernel(name: str) -> bool:
    """Return whether a kernel computes, copies or fills, according to its name."""
    return bool(_COMPUTATION.search(name))


def is_communication_call(name: str) -> bool:
    """Return whether an operator, range or call of the host is a call of a communication library."""
    return bool(_LIBRARY_CALL.search(name))


def is_communication_operator(name: str) -> bool:
    """Return whether an operator is a collective or message, also without the namespace of a communication library."""
    return bool(_OPERATOR.search(name)) or is_communication_call(name)


def is_surrounding_communication(name: str) -> bool:
    """Return whether an operator or range launches communication, according to its name.

    The kernels that it launches directly communicate, except those whose own names are names of computations.
    """
    return is_communication_call(name) or (bool(_AROUND.search(name)) and not _PREPARATION.search(name))
