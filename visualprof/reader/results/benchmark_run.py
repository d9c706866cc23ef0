"""A run of a load generator against an inference server, whatever the tool."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Latency:
    """Distribution of a latency over requests or tokens, in ns; `None` if the tool did not report a value."""

    mean_ns: int | None = None
    p50_ns: int | None = None
    p90_ns: int | None = None
    p95_ns: int | None = None
    p99_ns: int | None = None


@dataclass(frozen=True)
class BenchmarkRun:
    """A run of a load generator; `None` is unknown.

    Attributes:
        tool: The load generator, "" if unknown.
        backend: The server, as the tool calls it, "" if unknown.
        model: Name of the model, "" if unknown.
        concurrency: Limit of requests at the same time.
        offered_per_s: Requests sent per second; `None` also if they are sent as fast as the concurrency allows.
        n: Completed requests.
        failed: Failed requests.
        duration_ns: Duration of the run.
        achieved_per_s: Requests completed per second.
        output_tokens_per_s: Generated tokens per second.
        total_tokens_per_s: Tokens of prompts and answers per second.
        input_tokens: Tokens of all prompts.
        output_tokens: Tokens of all answers.
        ttft: Time to the first token.
        tpot: Mean time per token after the first one, per request.
        itl: Time between two tokens.
        request: Time of a whole request.
    """

    tool: str
    backend: str = ""
    model: str = ""
    concurrency: int | None = None
    offered_per_s: float | None = None
    n: int | None = None
    failed: int | None = None
    duration_ns: int | None = None
    achieved_per_s: float | None = None
    output_tokens_per_s: float | None = None
    total_tokens_per_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    ttft: Latency = field(default_factory=Latency)
    tpot: Latency = field(default_factory=Latency)
    itl: Latency = field(default_factory=Latency)
    request: Latency = field(default_factory=Latency)
