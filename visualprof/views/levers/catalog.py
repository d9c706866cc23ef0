"""The levers. To add one, add an entry, its text (`lever` in the locales), and a row in docs/plan.md."""

from __future__ import annotations

from visualprof.views.levers.estimates import (
    double_batch,
    faster_workers,
    fused_optimizer,
    hidden_communication,
    removed_host_work,
    without_launches,
    worker_processes,
)
from visualprof.views.levers.half_precision import half_precision
from visualprof.views.measure.findings.levers import Lever

LEVERS = (
    Lever(name="dataloader_workers", rules=("dataloader_bound",), estimate=worker_processes, training_only=True),
    Lever(name="faster_loading", rules=("dataloader_bound",), estimate=faster_workers, training_only=True),
    Lever(name="pinned_memory", rules=("pageable_copies",)),
    Lever(name="overlapped_copies", rules=("copies_blocking",)),
    Lever(name="no_synchronization", rules=("hidden_sync",)),
    Lever(name="overlapped_communication", rules=("communication_bound",), estimate=hidden_communication),
    Lever(name="mixed_precision", rules=("tensor_cores_unused",), estimate=half_precision),
    Lever(name="channels_last", rules=("layout_changes",)),
    Lever(name="fused_attention", rules=("attention_not_fused",)),
    Lever(name="fused_elementwise", rules=("elementwise_chains",)),
    Lever(
        name="fewer_launches",
        rules=("many_small_kernels", "host_bound"),
        estimate=without_launches,
        code={"pytorch": 'model = torch.compile(model, mode="reduce-overhead")'},
    ),
    Lever(
        name="fused_optimizer",
        estimate=fused_optimizer,
        confidence="medium",
        training_only=True,
    ),
    Lever(name="cached_allocations", rules=("allocator_calls",)),
    Lever(name="fixed_shapes", rules=("recompilation",)),
    Lever(name="moved_host_work", rules=("host_bound", "outside_operators"), estimate=removed_host_work),
    Lever(name="distributed_data_parallel", rules=("data_parallel",), training_only=True),
    Lever(name="device_collectives", rules=("not_nccl",)),
    Lever(
        name="larger_batch",
        rules=("small_batch",),
        estimate=double_batch,
        confidence="medium",
        code={
            "pytorch": "DataLoader(dataset, batch_size=2 * batch_size)",
            "paddle": "paddle.io.DataLoader(dataset, batch_size=2 * batch_size)",
            "megengine": "megengine.data.RandomSampler(dataset, batch_size=2 * batch_size)",
        },
        training_only=True,
    ),
)
