"""Determine which kernels use tensor cores and which operators could use them, by their names."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Mask, Rows, Trace

# Verified with the tensor pipe counter of an H200: tests/views/test_tensor_core.py.
KERNEL_NAMES = pattern(
    # Volta to Ada: instruction shapes in the names of cuBLAS, cuDNN and CUTLASS kernels
    r"(?<!\d)(?:884|1688|16816|16832|8816|8832|16864)(?!\d)|(?<![a-z])[hidbq]mma|tensorop|tensor\d+x\d+x\d+|xmma_"
    # Hopper and Blackwell: asynchronous matrix products, generated kernels of cuBLASLt, CUTLASS 3 main loops
    r"|gmma|tcgen05|nvjet_|cutlass3x_|MainloopSm(?:90|10\d|12\d)|sm(?:90|10\d|12\d)_\w*gemm"
    # attention
    r"|flash_(?:fwd|bwd)|flash_attn|fmha_(?:cutlass|fwd|bwd|v2)",
    re.IGNORECASE,
)
# The same libraries also generate kernels for the CUDA cores.
CUDA_CORE_NAMES = pattern(r"ffma|simt", re.IGNORECASE)

OPERATOR_NAMES = pattern(
    r"(?:^|::|_)(?:addbmm|addmm|addmv|addr|baddbmm|bmm|mm|mv|matmul|linear|linear_relu|einsum|tensordot|chain_matmul|"
    r"_?conv(?:olution)?(?:_?(?:1|2|3)d)?(?:_transpose(?:1|2|3)d|_tbc|_overrideable|_forward|_relu)?|convolution_backward|"
    r"(?:cudnn|miopen|thnn|slow|mkldnn)_conv\w*|conv_depthwise\w*|"
    r"lstm(?:_cell)?|gru(?:_cell)?|rnn_(?:tanh|relu)(?:_cell)?|_cudnn_rnn\w*|"
    r"scaled_dot_product\w*|_flash_attention\w*|_efficient_attention\w*|_scaled_mm|_int_mm|"
    r"conv2d\w*|conv3d\w*|matmul_v2|mul_grad|matmul\w*|fc|fused_?gemm\w*|"
    r"MatMul|Gemm|Conv|ConvTranspose|FusedMatMul|FusedGemm|FusedConv|Attention|MultiHeadAttention|"
    r"Convolution\w*|ConvBias\w*|MatrixMul\w*|BatchedMatrixMul\w*|BatchedMatmul)$",
    re.IGNORECASE,  # Paddle's gradients: MatmulGradNode, Conv2dGradNodeFinal, Global_MatmulGradNode
)
# Suffixes that are not part of an operator's name, as in Paddle's "conv2d dygraph" and "matmul compute".
NAME_SUFFIX = pattern(r"(?: (?:dygraph|compute)|Grad(?:Node(?:Final)?)?|\[\d+\])+$")


def uses_tensor_core(name: str) -> bool:
    """Return whether a kernel of this name runs on tensor cores."""
    return bool(KERNEL_NAMES.search(name)) and not CUDA_CORE_NAMES.search(name)


def can_use_tensor_core(name: str) -> bool:
    """Return whether an operator of this name has a tensor-core implementation for some type and shape."""
    return bool(OPERATOR_NAMES.search(NAME_SUFFIX.sub("", name).strip()))


def knows_tensor_cores(trace: Trace) -> bool:
    """Return whether the names of the trace's device work reveal the use of tensor cores.

    This is so for NVIDIA kernels.
    """
    return trace.meta.device_work == "kernel" and trace.meta.device_type == "cuda"


def match_names(trace: Trace, name_ids: Rows, test: Callable[[str], bool]) -> Mask:
    """Return `test(name)` for every string id; each distinct name is tested once."""
    holds = np.zeros(len(trace.strings), bool)
    holds[name_ids] = True
    distinct_ids: list[int] = np.flatnonzero(holds).tolist()
    for i in distinct_ids:
        holds[i] = test(trace.strings[i])
    return holds[name_ids]
