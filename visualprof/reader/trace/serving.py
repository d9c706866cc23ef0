"""Steps of inference servers, parsed from their annotations: the requests and tokens of each step.

vLLM, SGLang, TensorRT-LLM, ATOM, diffusion loops and custom loops write them into the text of an annotation around each
step.

Sources: vllm/v1/worker/gpu_worker.py (`annotate_profile`), sglang/srt/model_executor/step_span_utils.py,
tensorrt_llm/_torch/pyexecutor/py_executor.py (`_forward_step`), docs/views/serving.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from visualprof.reader.patterns import pattern
from visualprof.reader.trace.types import Ints, Mask, Rows

Engine = Literal["vllm", "sglang", "tensorrt-llm", "atom", "diffusion"]
Phase = Literal["prefill", "mixed", "decode", "draft", "denoise", "idle", "unknown"]
MAX_TEXT_CHARS = 400  # length of an annotation's text


class Load(NamedTuple):
    """Work of a step for requests of one kind; `None` if the text does not give it.

    Attributes:
        requests: Number of requests.
        tokens: Number of query tokens of all requests.
        context: Number of tokens that the queries attend to.
        squares: Sum over the requests of query tokens squared.
        pairs: Sum over the requests of query tokens times context tokens.
    """

    requests: int | None = None
    tokens: int | None = None
    context: int | None = None
    squares: int | None = None
    pairs: int | None = None


NO_LOAD = Load(0, 0, 0, 0, 0)
UNKNOWN_LOAD = Load()


class ServingStep(NamedTuple):
    """A step of an inference server.

    Attributes:
        engine: The server, `None` if the text does not identify it.
        phase: The phase of the step.
        prefill: Load of requests in prefill.
        decode: Load of requests in decode.
        tokens: Query tokens of both kinds, `None` if unknown.
        batch: Requests of both kinds, or images.
    """

    engine: Engine | None
    phase: Phase
    prefill: Load = NO_LOAD
    decode: Load = NO_LOAD
    tokens: int | None = None
    batch: int | None = None


_LOAD = r"(?:\((?:sq)?(\d+)(?:_\d+)?(?:sk(\d+)sqsq(\d+)sqsk(\d+))?\))?"
_VLLM = pattern(rf"^execute_(?:(\d+)_)?context_(\d+){_LOAD}_generation_(\d+){_LOAD}$")
_VLLM_OLD = pattern(r"^execute_new_(\d+)_cached_(\d+)$")
_SGLANG = pattern(r"^step\[([A-Z][A-Z_0-9]*) bs=(\d+)((?: \w+=\d+)*)\]$")
_TENSORRT = pattern(
    r"^\[Executor\] _forward_step(?: \d+)?: (\d+) ctx reqs,(?: (\d+) ctx tokens,)? (\d+) gen reqs"
    r"(?:, (\d+) gen tokens)?$"
)
_ATOM = pattern(r"^(prefill|decode)\[bs=(\d+)(?:/\d+)?((?: \w+=(?:\d+|\[[\d, .]*\](?:\.\.\.\+\d+)?))*)\]$")
_DIFFUSION = pattern(r"^execute_diffusion_(\d+)_\d+x\d+$|^[Dd]enois(?:e|ing)[_ ][Ss]tep[_ #:/-]{0,2}\d+$")
_LOOP = pattern(r"^([Pp]refill|[Dd]ecod(?:e|ing))[_ /](?:[Ss]tep|[Ii]ter(?:ation)?)[_ #:/-]{0,2}\d+$")
_PAIR = pattern(r"(\w+)=(\d+)")
_TOO_MANY_DIGITS = pattern(r"\d{16}")  # exceeds any number of tokens or product of two
_PREFIXES = ("execute_", "step[", "[Executor]", "prefill", "decod", "denois", "Prefill", "Decod", "Denois")
_STEP_LIKE = pattern(
    r"^(?:execute_(?:\d+_)?(?:context|diffusion|new)_|step\[\w+ bs=|\[Executor\] _forward|(?:prefill|decode)\[bs=)"
)


def looks_like_step(text: str) -> bool:
    """Return whether a text starts like the annotation of a step, whether or not it can be parsed."""
    return text.startswith(_PREFIXES) and bool(_STEP_LIKE.match(text))


@lru_cache(maxsize=4096)
def parse_serving_step(text: str) -> ServingStep | None:
    """Return the step that an annotation describes, or `None` for other texts and implausible values."""
    if not text.startswith(_PREFIXES) or len(text) > MAX_TEXT_CHARS or _TOO_MANY_DIGITS.search(text):
        return None
    for form, parse in _PARSERS:
        match = form.match(text)
        step = parse(match) if match else None
        if step and _is_possible(step):
            return step
    return None


def outermost_mask(ts: Ints, dur: Ints, track: Rows) -> Mask:
    """Return (n,) whether each step is outside of all other steps of its track.

    The first of two equal steps counts as outer.

    Cost: 1 us per step; a recording has a few thousand.
    """
    order = np.lexsort((-dur, ts, track))
    mask, end_of = np.zeros(len(ts), bool), dict[int, int]()
    for row, begin, end, track_number in zip(
        order.tolist(), ts[order].tolist(), (ts + dur)[order].tolist(), track[order].tolist(), strict=True
    ):
        mask[row] = end > end_of.get(track_number, begin)
        end_of[track_number] = max(end, end_of.get(track_number, end))
    return mask


def _is_possible(step: ServingStep) -> bool:
    """Return whether the load is consistent.

    Each request has at least one token, and attends to at least its own queries. A sum of products over the requests
    does not exceed the product of the sums.
    """
    for load in (step.prefill, step.decode):
        requests, tokens, context = load[:3]
        if requests is not None and tokens is not None and (tokens < requests or (tokens and not requests)):
            return False
        if tokens is not None and context is not None and context < tokens:
            return False
        if load.squares is not None and load.pairs is not None and load.pairs < load.squares:
            return False
        if tokens is not None and (load.squares or 0) > tokens**2:
            return False
        if tokens is not None and context is not None and (load.pairs or 0) > tokens * context:
            return False
    return True


def _phase(prefill: int, decode: int) -> Phase:
    if prefill:
        return "mixed" if decode else "prefill"
    return "decode" if decode else "idle"


def _step_from_loads(engine: Engine, prefill: Load, decode: Load, tokens: int | None = None) -> ServingStep:
    requests = [load.requests or 0 for load in (prefill, decode)]
    if prefill.tokens is not None and decode.tokens is not None:
        tokens = prefill.tokens + decode.tokens
    return ServingStep(engine, _phase(*requests), prefill, decode, tokens, sum(requests))


def _parse_load(texts: tuple[str | None, ...]) -> Load:
    """Return a load from its texts. Without requests, all values are 0."""
    return _normalize_load(Load(*(None if text is None else int(text) for text in texts)))


def _normalize_load(load: Load) -> Load:
    return NO_LOAD if load.requests == 0 and not load.tokens else load


def _parse_vllm(match: re.Match[str]) -> ServingStep:
    """Parse `execute_<tokens>_context_<n>(sq..)_generation_<m>(sq..)`; tokens and the bracketed parts are optional."""
    groups = match.groups()
    prefill, decode = _parse_load(groups[1:6]), _parse_load(groups[6:11])
    total_tokens = None if groups[0] is None else int(groups[0])
    if total_tokens is not None and prefill.tokens is None and decode is NO_LOAD:
        prefill = prefill._replace(tokens=total_tokens)
    elif total_tokens is not None and decode.tokens is None and prefill is NO_LOAD:
        decode = decode._replace(tokens=total_tokens)
    return _step_from_loads("vllm", prefill, decode, total_tokens)


def _parse_old_vllm(match: re.Match[str]) -> ServingStep:
    """Parse new and cached requests; a prompt in chunks counts as cached after its first chunk."""
    return _step_from_loads("vllm", _parse_load((match[1],)), _parse_load((match[2],)))


def _parse_sglang(match: re.Match[str]) -> ServingStep:
    """Parse `step[EXTEND bs=2 toks=12 c_sq=.. c_sk=..]`. Without `c_sq` the tokens are the queries of the context."""
    mode, batch = match[1], int(match[2])
    numbers = {key: int(n) for key, n in _PAIR.findall(match[3])}
    prefill, decode = (_aggregates(numbers, kind) for kind in "cg")
    if mode == "EXTEND" or mode == "SPLIT_PREFILL":
        tokens = numbers.get("toks", prefill.tokens)
        prefill = _normalize_load(prefill._replace(requests=batch, tokens=tokens))
        return _step_from_loads("sglang", prefill, NO_LOAD, tokens)
    if mode == "DECODE":
        decode = _normalize_load(decode._replace(requests=batch, tokens=numbers.get("g_sq", batch)))
        return _step_from_loads("sglang", NO_LOAD, decode)
    if mode in ("TARGET_VERIFY", "VERIFY"):  # several drafted tokens per request, which the context excludes
        decode = decode._replace(requests=batch)
        counted = decode.context is None or decode.context >= (decode.tokens or 0)
        return _step_from_loads(
            "sglang", NO_LOAD, decode if counted else Load(batch, decode.tokens, squares=decode.squares)
        )
    if mode == "MIXED" and "c" in numbers and "g" in numbers:
        return _step_from_loads(
            "sglang", prefill._replace(requests=numbers["c"]), decode._replace(requests=numbers["g"])
        )
    phase: Phase = "mixed" if mode == "MIXED" else "draft" if mode.startswith("DRAFT") else "unknown"
    idle = mode == "IDLE" or (phase == "unknown" and batch == 0)
    load = NO_LOAD if idle else UNKNOWN_LOAD
    return ServingStep("sglang", "idle" if idle else phase, load, load, None, batch)


def _aggregates(numbers: dict[str, int], kind: str) -> Load:
    return Load(None, *(numbers.get(f"{kind}_{name}") for name in ("sq", "sk", "sqsq", "sqsk")))


def _parse_tensorrt(match: re.Match[str]) -> ServingStep:
    """Parse `[Executor] _forward_step 7: 1 ctx reqs, 512 ctx tokens, 8 gen reqs`; only later versions have tokens."""
    context, generation = _parse_load((match[1], match[2])), _parse_load((match[3], match[4]))
    return _step_from_loads("tensorrt-llm", context, generation)


def _parse_atom(match: re.Match[str]) -> ServingStep:
    numbers = {key: int(n) for key, n in _PAIR.findall(match[3])}
    load = Load(int(match[2]), *(numbers.get(name) for name in ("tok", "sk", "sqsq", "sqsk")))
    if match[1] == "prefill":
        return _step_from_loads("atom", load, NO_LOAD)
    if numbers.get("p"):  # prompts in the decode batch
        return ServingStep("atom", "mixed", UNKNOWN_LOAD, UNKNOWN_LOAD, load.tokens, load.requests)
    return _step_from_loads("atom", NO_LOAD, load)


def _parse_diffusion(match: re.Match[str]) -> ServingStep:
    """Parse `denoising_step_3`, or `execute_diffusion_2_1024x1024` of a whole pipeline call with two images."""
    return ServingStep("diffusion", "denoise", UNKNOWN_LOAD, UNKNOWN_LOAD, batch=int(match[1]) if match[1] else None)


def _parse_loop(match: re.Match[str]) -> ServingStep:
    """Parse `decode_step_3`, a common annotation of custom loops."""
    return ServingStep(None, "prefill" if match[1][0] in "pP" else "decode", UNKNOWN_LOAD, UNKNOWN_LOAD)


_PARSERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], ServingStep]], ...] = (
    (_VLLM, _parse_vllm),
    (_VLLM_OLD, _parse_old_vllm),
    (_SGLANG, _parse_sglang),
    (_TENSORRT, _parse_tensorrt),
    (_ATOM, _parse_atom),
    (_DIFFUSION, _parse_diffusion),
    (_LOOP, _parse_loop),
)
