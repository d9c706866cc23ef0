"""Common questions with their SQL. Parameters are written `$name`; `question` and `question_zh` say the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from visualprof.errors import BadParameter, NotFound
from visualprof.messages import msg

ParameterValue = str | int | float


@dataclass(frozen=True)
class StoredQuery:
    """A question with its SQL.

    Attributes:
        id: Name of the query.
        question: The question in English.
        question_zh: The question in Chinese.
        sql: The statement.
        parameters: Parameters with their default values.
    """

    id: str
    question: str
    question_zh: str
    sql: str
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict[str, ParameterValue])

    @property
    def text(self) -> str:
        """Return the statement without surrounding lines."""
        return self.sql.strip()

    def values(self, texts: Mapping[str, str]) -> dict[str, ParameterValue]:
        """Return the values of the parameters, with the types of the defaults.

        Raises:
            BadParameter: A parameter is unknown or not a number.
        """
        values = dict(self.parameters)
        for name, text in texts.items():
            if name not in values:
                raise BadParameter(
                    msg("query.no_parameter", f"the stored query {self.id!r} has no parameter {name!r}"),
                    msg("query.parameters", f"parameters: {', '.join(values) or 'none'}"),
                )
            try:
                values[name] = type(values[name])(text)
            except ValueError as error:
                raise BadParameter(msg("query.not_a_number", f"{name}={text[:40]!r} is not a number")) from error
        return values


def parse_value(text: str) -> ParameterValue:
    """Return the value of a parameter of a user's own statement: a number if the text is one."""
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    return float(text) if re.fullmatch(r"[+-]?(\d+\.\d*|\.?\d+)([eE][+-]?\d+)?", text) else text


def stored_query(name: str) -> StoredQuery:
    """Return a stored query.

    Raises:
        NotFound: There is no such query.
    """
    if name in STORED:
        return STORED[name]
    near = get_close_matches(name, STORED, 1)
    raise NotFound(
        msg("query.no_stored_query", f"there is no stored query {name[:100]!r}"),
        msg("query.did_you_mean", f"did you mean {near[0]}?")
        if near
        else msg("query.stored_queries", f"stored queries: {', '.join(STORED)}"),
    )


_QUERIES = (
    StoredQuery(
        "layer_kernels",
        "Which kernels does a module launch, and how long do they take?",
        "某个模块启动了哪些核函数，各耗时多少？",
        """
SELECT module_path, backward, name, count(*) AS calls, sum(dur) AS total_ns
FROM kernel
WHERE module_path LIKE '%' || $module || '%'
GROUP BY ALL
ORDER BY total_ns DESC
""",
        {"module": ""},
    ),
    StoredQuery(
        "range_kernels",
        "Which kernels are launched inside a user range, and how long do they take?",
        "某个用户区间内启动了哪些核函数，各耗时多少？",
        """
WITH RECURSIVE inside(id, top) AS (
  SELECT id, name FROM range WHERE name LIKE '%' || $range || '%'
  UNION
  SELECT r.id, i.top FROM range r JOIN inside i ON r.parent_id = i.id
)
SELECT i.top AS range, k.name, count(*) AS calls, sum(k.dur) AS total_ns
FROM kernel k JOIN inside i ON k.range_id = i.id
GROUP BY ALL
ORDER BY total_ns DESC
""",
        {"range": ""},
    ),
    StoredQuery(
        "between_markers",
        "How long does the device take from one user range to another?",
        "设备从一个用户区间到另一个用户区间用了多长时间？",
        """
SELECT a.id, a.name AS first, b.name AS second, a.device_start AS ts, min(b.device_end) - a.device_start AS dur
FROM range a JOIN range b ON b.trace = a.trace AND b.device_start >= a.device_start AND b.id <> a.id
WHERE a.name LIKE '%' || $first || '%' AND b.name LIKE '%' || $second || '%'
GROUP BY a.id, a.name, b.name, a.device_start
ORDER BY ts
""",
        {"first": "", "second": ""},
    ),
    StoredQuery(
        "top_kernels",
        "Which kernels take the most time?",
        "哪些核函数最耗时？",
        """
SELECT name, count(*) AS calls, sum(dur) AS total_ns, avg(dur) AS mean_ns, quantile_cont(dur, 0.99) AS p99_ns,
  sum(dur) / sum(sum(dur)) OVER () AS share_ratio
FROM kernel
GROUP BY name
ORDER BY total_ns DESC
""",
    ),
    StoredQuery(
        "source_lines",
        "Which lines of the program do operators and their device time come from?",
        "算子及其设备耗时来自程序的哪些代码行？",
        """
SELECT split_part(stack, chr(10), 1) AS line, name, count(*) AS calls, sum(self_dur) AS host_ns,
  sum(device_self_dur) AS device_ns
FROM op
WHERE stack IS NOT NULL
GROUP BY ALL
ORDER BY device_ns DESC, host_ns DESC
""",
    ),
    StoredQuery(
        "gemm_shapes",
        "Which shapes of matrix multiplications take the most device time?",
        "哪些形状的矩阵乘法设备耗时最长？",
        """
SELECT name, input_shapes, count(*) AS calls, sum(device_self_dur) AS device_ns
FROM op
WHERE regexp_matches(name, '(^|::|_)(mm|addmm|bmm|baddbmm|matmul|linear|gemm)(_v2)?$', 'i') AND device_self_dur > 0
GROUP BY ALL
ORDER BY device_ns DESC
""",
    ),
    StoredQuery(
        "launches",
        "Which operator launched which kernel?",
        "每个核函数由哪个算子启动？",
        """
SELECT k.id, k.ts, k.dur, k.name, k.op_id, k.op, l.name AS call, k.launch_id
FROM kernel k LEFT JOIN slice l ON l.id = k.launch_id
ORDER BY k.ts
""",
    ),
    StoredQuery(
        "argument",
        "Which values does an argument of events have?",
        "事件的某个参数有哪些取值？",
        """
SELECT s.name, a.display_value AS value, count(*) AS events, sum(s.dur) AS total_ns
FROM args a JOIN slice s ON s.id = a.arg_set_id
WHERE a.key = $key
GROUP BY ALL
ORDER BY events DESC, total_ns DESC
""",
        {"key": "grid"},
    ),
    StoredQuery(
        "chosen_steps",
        "How much device time do the kernels of chosen steps take?",
        "所选步中的核函数占用多少设备时间？",
        """
SELECT s.name AS step, k.name, count(*) AS calls, sum(k.dur) AS total_ns
FROM kernel k JOIN step s ON s.id = k.step_id
WHERE s.name LIKE '%' || $step || '%'
GROUP BY ALL
ORDER BY step, total_ns DESC
""",
        {"step": ""},
    ),
    StoredQuery(
        "exposed_communication",
        "How much communication does no computation hide, per step and rank?",
        "每步、每个 rank 有多少通信未被计算掩盖？",
        """
SELECT rank, trace, step, device,
  covered(list([ts, ts + dur]) FILTER (WHERE category = 'comm')) AS communication_ns,
  covered(ts, dur) - coalesce(covered(list([ts, ts + dur]) FILTER (WHERE category = 'kernel')), 0) AS exposed_ns
FROM kernel
GROUP BY rank, trace, step, device
HAVING communication_ns > 0
ORDER BY rank, trace, step, device
""",
    ),
    StoredQuery(
        "collectives",
        "How fast are collectives by kind and size, per rank?",
        "各 rank 的集合通信按类型和大小速度如何？",
        """
SELECT rank, kind, group_name, group_size, bytes, count(*) AS calls, median(dur) AS median_ns,
  median(bus_bandwidth) AS bus_bandwidth
FROM collective
GROUP BY rank, kind, group_name, group_size, bytes
ORDER BY rank, bytes DESC
""",
    ),
    StoredQuery(
        "gaps",
        "Why are devices idle?",
        "设备为什么空闲？",
        """
SELECT device, cause, count(*) AS gaps, sum(dur) AS total_ns, max(dur) AS longest_ns
FROM gap
WHERE stream IS NULL
GROUP BY device, cause
ORDER BY device, total_ns DESC
""",
    ),
    StoredQuery(
        "launch_delays",
        "How long do kernels wait from their launch to their start?",
        "核函数从启动调用到开始执行要等待多久？",
        """
SELECT device, stream, count(launch_delay) AS launches, median(launch_delay) AS median_ns,
  quantile_cont(launch_delay, 0.99) AS p99_ns, max(launch_delay) AS longest_ns
FROM kernel
GROUP BY device, stream
ORDER BY device, stream
""",
    ),
    StoredQuery(
        "loader_waits",
        "How long does each step wait for data?",
        "每步等待数据的时间有多长？",
        """
SELECT s.id, s.name AS step, s.dur, coalesce(covered(r.ts, r.dur), 0) AS waiting_ns,
  waiting_ns / s.dur AS waiting_ratio
FROM step s LEFT JOIN range r ON r.step_id = s.id AND r.category = 'dataloader'
GROUP BY s.id, s.name, s.dur, s.ts
ORDER BY s.ts
""",
    ),
    StoredQuery(
        "compare_traces",
        "Which kernels differ between the first two open traces?",
        "前两个打开的 trace 之间哪些核函数有差异？",
        """
SELECT name, sum(dur) FILTER (WHERE trace = 0) AS base_ns, sum(dur) FILTER (WHERE trace = 1) AS new_ns,
  coalesce(new_ns, 0) - coalesce(base_ns, 0) AS delta_ns, count(*) FILTER (WHERE trace = 0) AS base_calls,
  count(*) FILTER (WHERE trace = 1) AS new_calls
FROM kernel
WHERE trace < 2
GROUP BY name
ORDER BY abs(delta_ns) DESC
""",
    ),
    StoredQuery(
        "phases",
        "Which kernels belong to prefill, and which to decode?",
        "哪些核函数属于预填充，哪些属于解码？",
        """
SELECT s.phase, k.name, count(*) AS calls, sum(k.dur) AS total_ns
FROM kernel k JOIN step s ON s.id = k.step_id
GROUP BY s.phase, k.name
ORDER BY s.phase, total_ns DESC
""",
    ),
    StoredQuery(
        "peak_allocations",
        "Which allocations are alive at the peak, by operator and stack?",
        "内存峰值时存活的分配来自哪些算子和调用栈？",
        """
WITH peak AS (SELECT device, max_by(ts, allocated) AS ts FROM memory WHERE allocated IS NOT NULL GROUP BY device)
SELECT a.device, a.op, a.stack, count(*) AS allocations, sum(a.bytes) AS total_bytes
FROM allocation a JOIN peak p ON p.device = a.device
WHERE a.ts <= p.ts AND (a.freed_ts > p.ts OR a.freed_ts IS NULL) AND a.address IS NOT NULL
GROUP BY ALL
ORDER BY total_bytes DESC
""",
    ),
    StoredQuery(
        "module_memory",
        "How much memory do modules allocate?",
        "各模块分配了多少内存？",
        """
SELECT device, module, count(*) AS allocations, sum(bytes) AS total_bytes, max(bytes) AS largest_bytes
FROM allocation
GROUP BY device, module
ORDER BY total_bytes DESC
""",
    ),
    StoredQuery(
        "outermost_operators",
        "Which operators run, in order, without those inside them?",
        "按顺序执行了哪些最外层算子？",
        """
SELECT id, ts, dur, name, input_shapes, step
FROM op
WHERE outermost
ORDER BY ts
""",
    ),
    StoredQuery(
        "kernel_pairs",
        "Which short kernels follow each other often and may be worth fusing?",
        "哪些短核函数经常相邻执行，可能值得融合？",
        """
WITH pairs AS (
  SELECT name, dur, lead(name) OVER stream AS next, lead(dur) OVER stream AS next_dur,
    lead(ts) OVER stream - ts - dur AS gap
  FROM kernel
  WINDOW stream AS (PARTITION BY track_id ORDER BY ts)
)
SELECT name, next, count(*) AS pairs, sum(dur + next_dur) AS total_ns, sum(greatest(gap, 0)) AS gap_ns
FROM pairs
WHERE next IS NOT NULL AND dur < $max_ns AND next_dur < $max_ns
GROUP BY name, next
ORDER BY pairs DESC, total_ns DESC
""",
        {"max_ns": 20_000},
    ),
)
STORED: Mapping[str, StoredQuery] = {query.id: query for query in _QUERIES}
