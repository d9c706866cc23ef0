"""Operators without a FLOP formula that are known to compute nothing, or to contain no matrix product.

All other operators without a formula may contain matrix products. Totals of model FLOPs leave them out, so such totals
are lower bounds.
"""

from __future__ import annotations

from visualprof.reader.patterns import pattern
from visualprof.views.measure.work.formulas import OTHER_FORMULAS

# Views, allocations, and operators that only call a copy or a fill.
_NO_WORK = """_conj _local_scalar_dense _reshape_alias _to_copy _unsafe_view alias as_strided broadcast_to chunk
    clone contiguous detach diagonal empty empty_like empty_strided expand expand_as flatten full full_like
    is_nonzero item lift_fresh movedim narrow new_empty new_empty_strided new_full new_ones new_zeros numpy_T ones
    ones_like permute ravel record_stream reshape resize resize_ resolve_conj resolve_neg result_type select set_
    slice split split_with_sizes squeeze swapaxes t tensor_split to transpose unbind unflatten unfold unsafe_chunk
    unsafe_split unsqueeze view view_as zeros zeros_like"""
_NO_PRODUCT = """_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _cat _embedding_bag _embedding_bag_backward
    _index_put_impl_ _local_scalar_dense _masked_scale _pin_memory _unique2 adaptive_avg_pool2d adaptive_max_pool2d
    arange argsort avg_pool2d avg_pool2d_backward avg_pool3d bernoulli binary_cross_entropy
    binary_cross_entropy_with_logits bincount bitwise_xor bucketize cat cross_entropy_loss cummax cumprod dropout
    equal exponential_ flip floor_divide_ glu hardtanh heaviside huber_loss im2col index index_add_ index_copy_
    index_fill_ index_put_ isfinite isneginf isposinf kthvalue l1_loss linspace logit logit_backward masked_fill_
    masked_scatter_ masked_select max_pool2d max_pool2d_with_indices max_pool2d_with_indices_backward
    max_pool3d_with_indices median mse_loss mse_loss_backward multinomial native_dropout nll_loss
    nll_loss2d_backward nll_loss2d_forward nll_loss_backward nll_loss_forward nll_loss_nd nonzero normal_ one_hot
    pad pixel_shuffle polar prelu rand randint randn random_ randperm reflection_pad2d repeat repeat_interleave
    replication_pad2d roll scalar_tensor scatter scatter_ scatter_add scatter_add_ select_backward slice_backward
    smooth_l1_loss sort split_copy stack take_along_dim topk uniform_ unique_dim upsample_bicubic2d
    upsample_bilinear2d upsample_nearest2d upsample_nearest2d_backward view_as_complex view_as_real"""
_ONNX_NO_PRODUCT = """And ArgMax ArgMin AveragePool BatchNormalization Bernoulli bucketize Cast CastLike Ceil
    Compress Concat Constant ConstantOfShape Cos CumSum DepthToSpace DequantizeLinear Dropout DynamicQuantizeLinear
    EmbedLayerNormalization Equal Expand EyeLike Flatten Floor Gather GatherElements GatherND GlobalAveragePool
    GlobalMaxPool Greater GreaterOrEqual GroupNorm GroupNormalization Hardmax Identity If InstanceNormalization
    IsInf IsNaN isneginf isposinf Less LessOrEqual logit logit_backward Loop LpNormalization MaxPool Mean
    MemcpyFromHost MemcpyToHost Mod NonMaxSuppression NonZero Not OneHot Or Pad PRelu QuantizeLinear RandomNormal
    RandomUniform Range Reciprocal ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare Reorder ReorderInput ReorderOutput Reshape Resize RMSNormalization Round scalar_tensor Scan
    Scatter ScatterElements ScatterND select_backward Shape Shrink Sign Sin Size Slice Softplus Softsign
    SpaceToDepth Split Squeeze Tile TopK Transpose Trilu Unique Unsqueeze Upsample Xor"""
_NO_WORK_NAMES = frozenset(
    ("detach", "torch::autograd::AccumulateGrad", "AccumulateGrad", *(f"aten::{name}" for name in _NO_WORK.split()))
)
_NO_PRODUCT_NAMES = frozenset(
    {*OTHER_FORMULAS, *_NO_WORK_NAMES, *_ONNX_NO_PRODUCT.split(), *(f"aten::{name}" for name in _NO_PRODUCT.split())}
)
_NO_PRODUCT_PATTERN = pattern(
    r"^aten::(_foreach_|_fused_(adam|adamw|sgd|adagrad)_$|_amp_)|^triton_(poi|red|per)_|^(Memcpy|Memset)"
    r"|at::native::.*(elementwise_kernel|multi_tensor_apply_kernel|reduce_kernel)|^void multi_tensor_apply_kernel"
)
_AUTOGRAD_PATTERN = pattern(r"^(torch::)?autograd::|^\w+Backward\d*$")
_BACKWARD_NODE = pattern(r"^\w+Backward\d+$")  # of torch; those of users have no number
_FILLERS = frozenset(("aten::copy_", "aten::fill_", "aten::zero_"))


def computes_nothing(name: str) -> bool:
    """Return whether an operator of torch only creates a view or a tensor, or only calls operators that do the work."""
    return name in _NO_WORK_NAMES or _BACKWARD_NODE.search(name) is not None


def is_helper(name: str) -> bool:
    """Return whether this is a helper that other operators call in addition to their own computation."""
    return name in _NO_WORK_NAMES or name in _FILLERS


def is_autograd(name: str) -> bool:
    """Return whether an event is of the autograd engine. It computes nothing itself if it calls operators."""
    return _AUTOGRAD_PATTERN.search(name) is not None


def may_dispatch(name: str) -> bool:
    """Return whether an operator belongs to torch. If it calls operators that compute, it computes nothing itself."""
    return name.startswith("aten::")


def has_no_product(name: str) -> bool:
    """Return whether an operator or kernel is known to contain no matrix product, convolution or attention."""
    is_known = name in _NO_PRODUCT_NAMES or name.removesuffix("_") in _NO_PRODUCT_NAMES
    return is_known or computes_nothing(name) or _NO_PRODUCT_PATTERN.search(name) is not None
