"""Run, worker and span from names."""

from __future__ import annotations

import pytest

from visualprof.reader.logdir.layout import RunPath, StatedRank, natural_key, parse_run_path, recording_kind


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        # torch.profiler.tensorboard_trace_handler
        ("r/worker0.1623143089861.pt.trace.json.gz", RunPath("r", "worker0", "1623143089861", 0)),
        ("r/node1_4711.1623143089861234567.pt.trace.json", RunPath("r", "node1_4711", "1623143089861234567", -1)),
        (
            "r/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz",
            RunPath("r", "resnet50_num_workers_0__worker0", "1623143089861", 0, "resnet50_num_workers_0"),
        ),
        # Paddle, VisualDL
        (
            "r/host_rank1_time_2026_11_20_03_52_43_834976.paddle_trace.json",
            RunPath("r", "host_rank1", "2026_11_20_03_52_43_834976", 1),
        ),
        (
            "r/hostB_pid12_time_2023_01_01_00_00_00_000.paddle_trace.json",
            RunPath("r", "hostB_pid12", "2023_01_01_00_00_00_000", -1),
        ),
        # JAX, TensorFlow: a file of each host
        (
            "r/plugins/profile/2026_11_23_00_39_22/node7.xplane.pb",
            RunPath("r/plugins/profile/2026_11_23_00_39_22", "node7", "", -1),
        ),
        # MegEngine
        ("r/31337.chrome_timeline.json", RunPath("r", "31337", "", -1)),
        # own scripts with ranks
        ("r/rank0.pt.trace.json.gz", RunPath("r", "rank0", "", 0)),
        ("r/rank_12.json", RunPath("r", "rank_12", "", 12)),
        ("r/trace_rank3.json", RunPath("r", "trace_rank3", "", 3)),
        ("r/bert_rank0of8.json.gz", RunPath("r/bert", "bert_rank0of8", "", 0)),
        # one plain file a folder
        ("exp1/trace.json", RunPath("exp1", "trace", "", -1)),
        ("exp1/profile.json.gz", RunPath("exp1", "profile", "", -1)),
        # the result of a remote run
        ("m-0001/ort/timeline.json", RunPath("m-0001/ort", "timeline", "", -1)),
        ("m-0001/ort/profile.json", RunPath("m-0001/ort", "profile", "", -1)),
        ("m-0001/ort/memory.json", RunPath("m-0001/ort", "memory", "", -1)),
        ("m-0001/ort/monitor.jsonl", RunPath("m-0001/ort", "monitor", "", -1)),
        # Nsight Compute beside the run that it measured kernels of
        ("r/gemm.ncu-rep", RunPath("r", "ncu_gemm", "", -1)),
        ("r/all.ncu.csv.gz", RunPath("r", "ncu_all", "", -1)),
        ("top.ncu-rep", RunPath(".", "ncu_top", "", -1)),
        # unrelated files
        ("r/resnet.pt.trace.json", RunPath("r/resnet", "resnet", "", -1)),
        ("r/cnn/cnn.pt.trace.json", RunPath("r/cnn", "cnn", "", -1)),
        ("cnn/cnn-2026-11-20.json", RunPath("cnn", "cnn", "2026-11-20", -1)),
        ("r/rank_non_gpu.json.gz", RunPath("r/rank_non_gpu", "rank_non_gpu", "", -1)),
        ("a/b/ort_v1.23.2_tinybert.json", RunPath("a/b/ort_v1.23.2_tinybert", "ort_v1.23.2_tinybert", "", -1)),
        ("lenet.chrome_timeline.json.gz", RunPath("lenet", "lenet", "", -1)),
        ("unknown", RunPath("unknown", "unknown", "", -1)),
        # in the log directory itself
        ("rank0.json", RunPath(".", "rank0", "", 0)),
        ("trace.json", RunPath(".", "trace", "", -1)),
        # ONNX Runtime adds the date
        ("bert_2026-11-20_04-15-33.json", RunPath("bert", "bert", "2026-11-20_04-15-33", -1)),
        (
            "onnxruntime_profile__2026-11-20_04-15-33.json",
            RunPath(".", "onnxruntime_profile", "2026-11-20_04-15-33", -1),
        ),
    ],
)
def test_names_of_profilers(path: str, expected: RunPath) -> None:
    folder, _, name = path.rpartition("/")
    assert parse_run_path(folder, name) == expected


@pytest.mark.parametrize(
    ("names", "run"),
    [
        (("profile_0.json", "profile_1.json"), "r"),
        (("trace_0.json", "trace_1.json"), "r"),
        (("exp-a[b]-rank[0].json", "exp-a[b]-rank[1].json"), "r/exp-a[b]"),
        (("1759000000.5-TP-0.trace.json.gz", "1759000000.5-TP-1.trace.json.gz"), "r"),
        (("1759-TP-0-DP-0-PP-0-EP-0.json", "1759-TP-1-DP-0-PP-0-EP-0.json"), "r"),
        (("rank-0.Apr_03_18_51_38.1102.pt.trace.json", "rank-1.Apr_03_18_51_38.1103.pt.trace.json"), "r"),
        (("dp0_tp0_rank0.174199464270739.pt.trace.json", "dp0_tp1_rank1.174199464270739.pt.trace.json"), "r"),
        (("r0-2025-3-14.1741994642707396628.pt.trace.json", "r1-2025-3-14.1741994642718752063.pt.trace.json"), "r"),
        (("gpt_0.json", "gpt_1.json"), "r/gpt"),
        (("gpt2_0.json.gz", "gpt2_1.json.gz"), "r/gpt2"),
    ],
)
def test_files_that_state_their_rank_form_one_run_whatever_their_names(names: tuple[str, str], run: str) -> None:
    paths = [parse_run_path("r", name, StatedRank(rank, 2)) for rank, name in enumerate(names)]
    assert [(path.run, path.rank) for path in paths] == [(run, 0), (run, 1)]
    assert paths[0].worker != paths[1].worker


@pytest.mark.parametrize(
    ("name", "run", "worker", "rank"),
    [
        ("rank1.sqlite", "r", "rank1", 1),
        ("exp[a]-rank[3].json", "r/exp[a]", "exp[a]-rank[3]", 3),
        ("1759000000.5-TP-1.trace.json", "r", "TP-1", 1),
        ("gpt-TP-1-DP-0.json", "r/gpt", "gpt-TP-1-DP-0", -1),
        ("rank-0.Apr_03_18_51_38.1102.pt.trace.json", "r", "rank-0", 0),
        ("profile_0.json", "r/profile_0", "profile_0", -1),
        ("trace_2.json", "r/trace_2", "trace_2", -1),
        ("dp.json", "r/dp", "dp", -1),
    ],
)
def test_names_with_ranks_of_files_that_state_none(name: str, run: str, worker: str, rank: int) -> None:
    path = parse_run_path("r", name)
    assert (path.run, path.worker, path.rank) == (run, worker, rank)


@pytest.mark.parametrize(
    ("path", "rank", "expected"),
    [
        ("r/rank1/trace.json", 1, RunPath("r", "rank1", "", 1)),
        ("rank_1/trace.json", 1, RunPath(".", "rank_1", "", 1)),
        ("r/worker1/node7_4211.1623143089861.pt.trace.json", 1, RunPath("r", "worker1", "1623143089861", 1)),
        ("r/exp-rank1/rank1.json", 1, RunPath("r/exp", "exp-rank1", "", 1)),
        ("r/rank1/gpt.json", 1, RunPath("r/gpt", "rank1", "", 1)),
        ("r/rank0/trace.json", 1, RunPath("r/rank0", "trace", "", 1)),  # the local rank of another node
        ("r/ranks/trace.json", 1, RunPath("r/ranks", "trace", "", 1)),
        ("r/rank1/trace.json", -1, RunPath("r/rank1", "trace", "", -1)),
    ],
)
def test_a_folder_named_after_the_rank_that_its_files_state_is_a_worker(
    path: str, rank: int, expected: RunPath
) -> None:
    folder, _, name = path.rpartition("/")
    assert parse_run_path(folder, name, StatedRank(rank, 2 if rank >= 0 else -1)) == expected


def test_a_rank_of_a_single_process_is_no_rank() -> None:
    assert parse_run_path("r", "trace_0.json", StatedRank(0, 1)).run == "r/trace_0"


def test_numbers_in_names_sort_as_numbers() -> None:
    assert sorted(["rank10", "rank2", "rank1", "a²"], key=natural_key) == ["a²", "rank1", "rank2", "rank10"]


@pytest.mark.parametrize(
    ("worker", "kind"),
    [
        ("ncu_gemm", "ncu"),
        ("monitor_node7", "monitor"),
        ("monitor", "monitor"),
        ("timeline", "timeline"),
        ("rank0", ""),
    ],
)
def test_recordings_of_one_process_are_not_ranks(worker: str, kind: str) -> None:
    assert recording_kind(worker) == kind
