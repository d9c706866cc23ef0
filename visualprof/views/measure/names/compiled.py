"""Traces of torch.compile in a recording: regions, graph calls, compilations, and the names of its kernels.

A region such as `0/1` is a compiled function and its version: here the second version of the first
compiled function. torch compiles a new version when the values that the earlier versions were
compiled for no longer hold.

The names of events come from torch/_dynamo/utils.py and torch/_dynamo/convert_frame.py, those of
kernels from torch/_inductor/utils.py.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.names.tensor_core import match_names

REGION = re.compile(r"Torch-Compiled Region: (\d+/\d+)")
GRAPH = re.compile(r"## Call CompiledFxGraph (\w+) ##")
LOOKUP = re.compile(r"TorchDynamo Cache Lookup")
COMPILATION = re.compile(r"_compile\.(<locals>\.)?compile_inner")  # the compilation of a function
_COMPILE_ID = re.compile(r"entire_frame_compile_data: .*\bcompile_id=(\d+/\d+)")
_FUSED_KERNEL = re.compile(
    r"(?:graph_\d+_)?(?P<maker>triton|cpp|pallas|mps)_(?:(?P<kind>[a-z]{3})_)?fused_(?P<operators>\w+?)_\d+"
)
FUSION_KINDS = {
    "poi": "pointwise",
    "red": "reduction",
    "per": "persistent_reduction",
    "tem": "template",
    "for": "foreach",
    "spl": "split_scan",
}
# Names of aten operators that contain `_`, which is also the separator, where the alphabetical order is ambiguous.
_NAME_WITH_UNDERSCORE = re.compile(
    r"_(?:adaptive_avg_pool[23]d|fused_rms_norm|int_mm|log_softmax|native_batch_norm_legit(?:_functional|_no_training)?"
    r"|safe_softmax|scaled_mm|softmax|to_copy|unsafe_index(?:_put)?|unsafe_masked_index(?:_put_accumulate)?|unsafe_view"
    r"|weight_norm|weight_norm_interface)(?:_backward(?:_data)?)?(?=_|$)"
    r"|_?(?:scaled_dot_product(?:_flash|_efficient|_cudnn)?_attention(?:_for_cpu)?|flash_attention(?:_forward|_backward)"
    r"|efficient_attention(?:_forward|_backward))(?:_backward)?(?=_|$)"
    r"|(?:native_(?:batch_norm|channel_shuffle|dropout|group_norm|layer_norm)|(?:adaptive_)?(?:avg|max)_pool[123]d"
    r"|(?:binary_cross_entropy|cross_entropy_loss|huber_loss|l1_loss|mse_loss|smooth_l1_loss|soft_margin_loss)"
    r"|embedding(?:_dense|_bag)?|leaky_relu|log_sigmoid|rms_norm|layer_norm|group_norm|reflection_pad[123]d"
    r"|upsample_(?:bicubic|bilinear|nearest|trilinear|linear)[123]d|grid_sampler(?:_[23]d)?"
    r"|convolution|elu|gelu|hardsigmoid|hardswish|hardtanh|index_select|masked_scatter|mish|select|sigmoid|silu|slice"
    r"|softplus|tanh|threshold|unfold)_backward(?=_|$)"
    r"|(?:native_(?:batch_norm|channel_shuffle|dropout|group_norm|layer_norm)|nll_loss(?:2d)?(?:_forward|_backward)?"
    r"|max_pool[23]d_with_indices(?:_backward)?|binary_cross_entropy_with_logits|constant_pad_nd|floor_divide"
    r"|linalg_vector_norm|leaky_relu|log_softmax|logical_(?:and|not|or|xor)|masked_fill|mse_loss|new_(?:empty|full|ones|zeros)"
    r"|bitwise_(?:and|not|or|xor|left_shift|right_shift)|one_hot|rms_norm|scalar_tensor|var_mean|std_mean"
    r"|(?:empty|full|ones|rand|randn|zeros)_like|split_with_sizes|index_(?:add|copy|fill|put|select)|clamp_(?:max|min)"
    r"|upsample_(?:bicubic|bilinear|nearest|trilinear|linear)[123]d|triu_indices|view_as_complex|view_as_real)(?=_|$)"
)


class Fusion(msgspec.Struct, frozen=True):
    """Content of the name of a generated kernel.

    Attributes:
        kind: One of `FUSION_KINDS`, or the backend that generated the kernel.
        operators: The aten operators that the kernel fuses.
    """

    kind: str
    operators: tuple[str, ...]


def parse_fusion(name: str) -> Fusion | None:
    """Return what the compiler fused into the kernel of this name; `None` if the name contains no operators."""
    match = _FUSED_KERNEL.fullmatch(name)
    if match is None:
        return None
    kind = FUSION_KINDS.get(match["kind"] or "", match["kind"] or match["maker"])
    return Fusion(kind, tuple(_split_operators(match["operators"])))


def _split_operators(joined: str) -> list[str]:
    """Return `_unsafe_view`, `mul` and `silu` for `_unsafe_view_mul_silu`.

    The compiler joins names with `_` in alphabetical order. So a piece that would sort before the
    previous one belongs to the previous name.
    """
    names: list[str] = []
    position = 0
    while position < len(joined):
        match = _NAME_WITH_UNDERSCORE.match(joined, position)
        end = match.end() if match else joined.find("_", position + 1)
        end = len(joined) if end < 0 else end
        name = joined[position:end]
        if names and not match and name < names[-1]:
            names[-1] += f"_{name}"
        else:
            names.append(name)
        position = end + 1
    return names


class CompiledRegions(msgspec.Struct, frozen=True):
    """Rows of torch.compile's events on threads, ascending.

    Attributes:
        region: Runs of compiled regions.
        graph: Calls of compiled graphs.
        lookup: Searches for a matching version.
        compilation: Compilations.
        compiled_region: Region that each compilation belongs to, "" if the file does not record it.
    """

    region: Ids
    graph: Ids
    lookup: Ids
    compilation: Ids
    compiled_region: tuple[str, ...]


@cached_on_trace
def compiled_regions(trace: Trace) -> CompiledRegions:
    """Return the events of torch.compile in a trace."""
    events = trace.events
    rows = np.flatnonzero(trace.track_mask(TrackKind.THREAD) & (events.dur >= 0)).astype(np.int32)
    name = events.name[rows]
    patterns = (REGION, GRAPH, LOOKUP, COMPILATION, _COMPILE_ID)
    region, graph, lookup, compilation, id_rows = (
        rows[match_names(trace, name, lambda text, pattern=pattern: pattern.match(text) is not None)]
        for pattern in patterns
    )
    id_events = zip(events.parent[id_rows].tolist(), events.name[id_rows].tolist(), strict=True)
    region_by_event = {int(parent): matched_text(trace, _COMPILE_ID, name) for parent, name in id_events}
    return CompiledRegions(
        region,
        graph,
        lookup,
        compilation,
        tuple(region_by_event.get(event, "") for event in events.parent[compilation].tolist()),
    )


def matched_text(trace: Trace, pattern: re.Pattern[str], name: int) -> str:
    """Return the pattern's first group in a string of the trace, "" if the string does not match."""
    match = pattern.match(trace.strings[name])
    return match[1] if match else ""


def enclosing_events(trace: Trace, candidates: Ids, rows: Ids) -> Ids:
    """Return the innermost candidate event that encloses each row, -1 for none and for row -1."""
    is_candidate = np.zeros(len(trace.events), bool)
    is_candidate[candidates] = True
    return nearest_ancestor(trace.events.parent, is_candidate, np.where(rows >= 0, trace.events.parent[rows], -1))
