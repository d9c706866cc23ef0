"""Findings of memory snapshots: programs whose waste is known by construction."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import FIXTURES
from tests.heap_programs import BACKWARD, FORWARD, OPTIMIZER, Program
from visualprof.reader import read_trace
from visualprof.views.measure.findings.detection import Rule, RuleContext
from visualprof.views.rules import gradients_at_peak, memory_between_steps, memory_rounding

MIB = 1 << 20
LOSS = ("/job/train.py:7:step",)


def context_of(program: Program, tmp_path: Path) -> RuleContext:
    return RuleContext(read_trace(program.write(tmp_path / "run.pickle")))


def small_tensors(size: int) -> Program:
    program = Program()
    program.alloc(8 * MIB)
    for _ in range(4000):
        program.alloc(size, LOSS)
    return program


def test_rounding_of_small_tensors_is_a_finding(tmp_path: Path) -> None:
    (finding,) = memory_rounding.detect(context_of(small_tensors(100), tmp_path))
    assert finding.evidence["rounding_bytes"] == 4000 * (512 - 100)
    assert finding.evidence["block_bytes"] == 8 * MIB + 4000 * 512
    assert finding.evidence["line"] == "/job/train.py:7 step"
    assert finding.evidence["line_bytes"] == 4000 * (512 - 100)


def test_full_blocks_have_no_rounding(tmp_path: Path) -> None:
    assert list(memory_rounding.detect(context_of(small_tensors(512), tmp_path))) == []


def training(loss_until_next_step: bool) -> Program:
    """Four steps with 10 MiB of activations, of which 4 MiB may stay until the loss is replaced."""
    program, carried = Program(), 0
    for step in range(4):
        program.start(f"ProfilerStep#{step}")
        block, graph = program.alloc(6 * MIB, FORWARD), program.alloc(4 * MIB, LOSS)
        if carried:
            program.free(carried)
        gradient = program.alloc(MIB, BACKWARD)
        program.free(block, gradient)
        carried = graph if loss_until_next_step else 0
        if not loss_until_next_step:
            program.free(graph)
        program.end(f"ProfilerStep#{step}")
    program.free(*filter(None, [carried]))
    return program


def test_memory_of_the_previous_step_at_the_peak_is_a_finding(tmp_path: Path) -> None:
    (finding,) = memory_between_steps.detect(context_of(training(True), tmp_path))
    assert finding.evidence["carried_bytes"] == 4 * MIB
    assert (finding.evidence["line"], finding.evidence["line_bytes"]) == ("/job/train.py:7 step", 4 * MIB)


def test_memory_released_within_its_step_is_not_carried(tmp_path: Path) -> None:
    assert list(memory_between_steps.detect(context_of(training(False), tmp_path))) == []


def optimizer(step_in_backward: bool) -> Program:
    """Two gradients of 4 MiB and 2 MiB, and optimizer state of twice their size."""
    program = Program()
    for step in range(2):
        sizes = [4 * MIB, 2 * MIB]
        if step_in_backward:
            for size in sizes:
                program.free(program.alloc(size, BACKWARD))
        gradients = [] if step_in_backward else [program.alloc(size, BACKWARD) for size in sizes]
        if step == 0:
            for size in sizes:
                program.alloc(2 * size, OPTIMIZER)
        program.free(*gradients)
    return program


def test_gradients_and_optimizer_state_at_the_peak_are_a_finding(tmp_path: Path) -> None:
    (finding,) = gradients_at_peak.detect(context_of(optimizer(False), tmp_path))
    assert finding.evidence["gradient_bytes"] == 6 * MIB
    assert finding.evidence["optimizer_bytes"] == 12 * MIB
    assert finding.evidence["saved_bytes"] == 2 * MIB


@pytest.mark.parametrize("rule", [memory_rounding.RULE, memory_between_steps.RULE, gradients_at_peak.RULE])
@pytest.mark.parametrize("name", ["train_oom.pickle", "rank0_snapshot.pickle"])
def test_trainings_without_this_waste_have_no_finding(rule: Rule, name: str) -> None:
    assert list(rule.detect(RuleContext(read_trace(FIXTURES / "memory_snapshots" / name)))) == []


def test_an_optimizer_step_in_the_backward_pass_has_no_such_peak(tmp_path: Path) -> None:
    assert list(gradients_at_peak.detect(context_of(optimizer(True), tmp_path))) == []
