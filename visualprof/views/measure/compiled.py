"""What torch.compile leaves in a recording: regions, calls of graphs, compilations, and what a kernel's name says.

A region is `0/1`: the function that was the first to be compiled, in the second of its versions; a version is compiled
where the values that the ones before were compiled for no longer hold. Names: torch/_dynamo/utils.py and
torch/_dynamo/convert_frame.py; of kernels, torch/_inductor/utils.py.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.tensor_core import match_names
from visualprof.views.measure.trace_cache import cached_on_trace

REGION = re.compile(r"Torch-Compiled Region: (\d+/\d+)")
GRAPH = re.compile(r"## Call CompiledFxGraph (\w+) ##")
LOOKUP = re.compile(r"TorchDynamo Cache Lookup")
COMPILATION = re.compile(r"_compile\.(<locals>\.)?compile_inner")  # as torch marks the compilation of a function
_COMPILED = re.compile(r"entire_frame_compile_data: .*\bcompile_id=(\d+/\d+)")
_FUSED = re.compile(
    r"(?:graph_\d+_)?(?P<maker>triton|cpp|pallas|mps)_(?:(?P<kind>[a-z]{3})_)?fused_(?P<operators>\w+?)_\d+"
)
FUSION_KINDS = {
    "poi": "pointwise", "red": "reduction", "per": "persistent_reduction", "tem": "template", "for": "foreach",
    "spl": "split_scan",
}  # fmt: skip
# Names of aten's operators that hold a `_`, which also stands between them, where their order does not tell.
_JOINED = re.compile(
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
    """What a kernel's name says. kind: of KINDS, or of its maker. operators: of aten, that it fuses."""

    kind: str
    operators: tuple[str, ...]


def parse_fusion(name: str) -> Fusion | None:
    """What the compiler fused into the kernel of that name; None where it names no operators."""
    match = _FUSED.fullmatch(name)
    if match is None:
        return None
    kind = FUSION_KINDS.get(match["kind"] or "", match["kind"] or match["maker"])
    return Fusion(kind, tuple(_operators(match["operators"])))


def _operators(joined: str) -> list[str]:
    """`_unsafe_view`, `mul` and `silu` of `_unsafe_view_mul_silu`.

    The compiler joins them by `_` in the order of the alphabet: what would stand before the one ahead belongs to it.
    """
    names: list[str] = []
    place = 0
    while place < len(joined):
        known = _JOINED.match(joined, place)
        end = known.end() if known else joined.find("_", place + 1)
        end = len(joined) if end < 0 else end
        name = joined[place:end]
        if names and not known and name < names[-1]:
            names[-1] += f"_{name}"
        else:
            names.append(name)
        place = end + 1
    return names


class CompiledRegions(msgspec.Struct, frozen=True):
    """Rows of events on threads, ascending: of regions, calls of graphs, looks for a version, and compilations.

    compiled: the region that each compilation is of, "" where the file does not say.
    """

    region: Ids
    graph: Ids
    lookup: Ids
    compilation: Ids
    compiled_region: tuple[str, ...]


@cached_on_trace
def compiled_regions(trace: Trace) -> CompiledRegions:
    """What the trace has of torch.compile."""
    events = trace.events
    rows = np.flatnonzero(trace.track_mask(TrackKind.THREAD) & (events.dur >= 0)).astype(np.int32)
    name = events.name[rows]
    patterns = (REGION, GRAPH, LOOKUP, COMPILATION, _COMPILED)
    region, graph, lookup, compiling, about = (
        rows[match_names(trace, name, lambda text, pattern=pattern: pattern.match(text) is not None)]
        for pattern in patterns
    )
    told = zip(events.parent[about].tolist(), events.name[about].tolist(), strict=True)
    compiled = {int(parent): matched_text(trace, _COMPILED, name) for parent, name in told}
    return CompiledRegions(
        region, graph, lookup, compiling, tuple(compiled.get(p, "") for p in events.parent[compiling].tolist())
    )


def matched_text(trace: Trace, pattern: re.Pattern[str], name: int) -> str:
    """What the pattern's group is in a string of the trace, "" where it does not match."""
    match = pattern.match(trace.strings[name])
    return match[1] if match else ""


def enclosing_events(trace: Trace, around: Ids, rows: Ids) -> Ids:
    """The innermost of some events that each of the rows lies in, -1 for none; row -1 lies in none."""
    wanted = np.zeros(len(trace.events), bool)
    wanted[around] = True
    return nearest_ancestor(trace.events.parent, wanted, np.where(rows >= 0, trace.events.parent[rows], -1))
