"""What a rank of a pipeline stage does in a step: the order of its operators, 1F1B as Megatron schedules microbatches.

Sizes and times are of a transformer's layers in bfloat16, none of them measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.cluster.topology import Topology

COMPUTE, TENSOR, DATA, EXPERT, WORLD = 7, 20, 24, 28, 32
SENDS = {1: (36, 37), -1: (40, 41)}  # streams of sending and of receiving, by the direction in the pipeline
ACTIVATIONS, BUCKET, NORM, EXPERTS = 4 << 20, 8 << 20, 1, 3 << 20  # elements of a message
REDUCE, GATHER, SCATTER, ALL = "allreduce", "_allgather_base", "_reduce_scatter_base", "all_to_allv"
FLASH = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>>"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>"
NORMALIZE = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>"
ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>"
SQUARES = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<LpNormFunctor<float, NormType::L2>>"


class Op(NamedTuple):
    """An operator with its kernel. kind: begin, load, kernel, collective, send, receive, wait, end.

    us: the kernel's usual time. blocks: for each multiprocessor. elements: of a message. peer: of a message, 1 for
    the next stage, -1 for the one before. waits: what follows on the compute stream waits for it.
    """

    kind: str
    name: str = ""
    inner: str = ""
    kernel: str = ""
    us: float = 0.0
    blocks: float = 0.0
    backward: bool = False
    group: str = ""
    elements: int = 0
    peer: int = 0
    stream: int = COMPUTE
    waits: bool = True


# Name, what it calls, kernel, us, blocks; a group stands for its collective.
LAYER: tuple[tuple[str, str, str, float, float], ...] = (
    ("aten::layer_norm", "aten::native_layer_norm", NORMALIZE, 25, 31.0),
    ("aten::linear", "aten::addmm", GEMM, 140, 1.9),
    ("aten::scaled_dot_product_attention", "aten::_flash_attention_forward", FLASH, 160, 3.9),
    ("aten::linear", "aten::addmm", GEMM, 60, 1.3),
    ("tensor", "", "", 0, 0),
    ("aten::add", "aten::add", ADD, 20, 62.0),
    ("aten::layer_norm", "aten::native_layer_norm", NORMALIZE, 25, 31.0),
    ("expert", "", "", 0, 0),
    ("aten::linear", "aten::addmm", GEMM, 150, 7.8),
    ("aten::gelu", "aten::gelu", GELU, 30, 125.0),
    ("aten::linear", "aten::addmm", GEMM, 150, 1.9),
    ("expert", "", "", 0, 0),
    ("tensor", "", "", 0, 0),
    ("aten::add", "aten::add", ADD, 20, 62.0),
)
EVENTS = 4  # of an operator and of a collective: two of the host, the launch, the kernel


@dataclass(frozen=True)
class Program:
    """How much a rank does in a step."""

    topology: Topology
    layers: int
    microbatches: int

    @classmethod
    def of_size(cls, topology: Topology, steps: int, events: int, microbatches: int = 0) -> Program:
        """With about so many events a rank."""
        micro = microbatches or 2 * topology.pipeline
        first, two = (cls(topology, layers, micro).events() for layers in (1, 2))
        return cls(topology, max(1, 1 + round((events / steps - first) / (two - first))), micro)

    def events(self) -> int:
        """Of a step of the first stage, about."""
        return EVENTS * len(list(self.ops(0)))

    def ops(self, stage: int) -> Iterator[Op]:
        """The operators of a step."""
        last = self.topology.pipeline - 1
        ahead = min(last - stage, self.microbatches)
        yield Op("begin")
        yield Op("load")
        for i in range(self.microbatches + ahead):
            if i < self.microbatches:
                yield from self._message("receive", stage, -1)
                yield from self._layers(backward=False)
                yield from self._message("send", stage, 1)
            if i >= ahead:
                yield from self._message("receive", stage, 1)
                yield from self._layers(backward=True, last=i == self.microbatches + ahead - 1)
                yield from self._message("send", stage, -1)
        yield Op("wait", name="data")
        yield Op("kernel", "aten::_foreach_norm", "aten::_foreach_norm", SQUARES, 40, 2.4)
        yield from self._collective("world", NORM, REDUCE, WORLD)
        yield Op("wait", name="host")
        for _ in range(4):
            yield Op("kernel", "aten::_fused_adamw_", "aten::_fused_adamw_", ADAM, 60, 2.4)
        for _ in range(self.layers):
            yield from self._collective("data", BUCKET, GATHER, DATA, waits=False)
        yield Op("end")

    def _layers(self, *, backward: bool, last: bool = False) -> Iterator[Op]:
        for _ in range(self.layers):
            for name, inner, kernel, us, blocks in reversed(LAYER) if backward else LAYER:
                if name == "tensor":
                    yield from self._collective("tensor", ACTIVATIONS, REDUCE, TENSOR, backward)
                elif name == "expert":
                    yield from self._collective("expert", EXPERTS, ALL, EXPERT, backward)
                elif backward:
                    grad = inner.removeprefix("aten::").strip("_").title().replace("_", "") + "Backward0"
                    outer = f"autograd::engine::evaluate_function: {grad}"
                    yield Op("kernel", outer, grad, kernel, us * 2, blocks * 2, True)
                else:
                    yield Op("kernel", name, inner, kernel, us, blocks)
            if last:
                yield from self._collective("data", BUCKET, SCATTER, DATA, True, waits=False)

    def _collective(
        self, group: str, elements: int, name: str, stream: int, backward: bool = False, *, waits: bool = True
    ) -> Iterator[Op]:
        if self.topology.members(group).shape[1] > 1:
            yield Op("collective", name, group=group, elements=elements, stream=stream, backward=backward, waits=waits)

    def _message(self, kind: str, stage: int, peer: int) -> Iterator[Op]:
        """To or from a stage that there is: activations come from the one before and go to the next."""
        if 0 <= stage + peer < self.topology.pipeline:
            receives = kind == "receive"
            forward = (peer < 0) == receives
            yield Op(
                kind,
                "recv" if receives else "send",
                group="pipeline",
                elements=ACTIVATIONS,
                peer=peer,
                stream=SENDS[1 if forward else -1][receives],
                backward=not forward,
                waits=receives,
            )
