"""Short names of kernels: operation, precision, tile and layout instead of the C++ name.

`RULES` is the table of families of kernels. The first rule that applies to a name determines the short name. Names
without a rule stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from visualprof.reader.patterns import pattern
from visualprof.views.measure.names.compiled import parse_fusion
from visualprof.views.measure.names.cpp_names import CppName, parse_cpp_name
from visualprof.views.measure.names.library_kernels import dtype_of, first_dtype, library_words
from visualprof.views.measure.names.mangled_names import demangle

MAX_CHARS = 8_000  # longer names stay as they are
MAX_DETAILS = 6  # words that are added to names that would be equal

_SHORTENED = pattern(r"^(?:void |std::)|[\w>]\(.*\)(?: const| \[[^\[\]]*\]|\.kd)*$|\w<.*[>.]$|^_?_Z[\dNS]", re.DOTALL)
_NAMESPACES = pattern(r"^(?:at(?:::native|::cuda)?|c10)::(?:\w+::)*")
_WORD = pattern(r"\d+(?:x\d+)+|[A-Za-z]+\d*|\d+")
_FUNCTION_AFFIXES = pattern(
    r"^(?:CUDAFunctor(?:OnSelf|OnOther)?_|launch_|direct_|_cuda_|_)|(?:_?cuda)?(?:_kernel)?(?:_cuda|_impl|_gpu)*$"
    r"|(?:CUDA)?KernelImpl$|_?[Ff]unctor$|(?<=[a-z])Ops?$"
)
_CAMEL_CASE = pattern(r"(?<=[a-z\d])(?=[A-Z])")
# Functions that only wrap another one, with the position of it among their arguments.
_WRAPPERS = {
    "BinaryFunctor": 3,
    "AUnaryFunctor": 3,
    "BUnaryFunctor": 3,
    "gpu_kernel_impl": 0,
    "gpu_kernel_impl_nocast": 0,
    "gpu_index_kernel": 0,
    "func_wrapper_t": 1,
    "ReduceOp": 1,
}


class Rule(NamedTuple):
    """A family of kernels: a pattern of the full name, and the short name of a match; None if it does not apply."""

    pattern: re.Pattern[str]
    shorten: Callable[[re.Match[str]], str | None]


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return the short name of each kernel that has one. Different kernels have different short names.

    Equal short names are lengthened by the words in which their full names differ, at last by a number.
    """
    groups: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        groups.setdefault(short_name(name), []).append(name)
    result: dict[str, str] = {}
    for short, group in groups.items():
        result |= dict(zip(group, [short] if len(group) == 1 else _distinct_names(short, group), strict=True))
    if len(set(result.values())) < len(result):  # a lengthened name equals another one
        repeated = _repeated(result)
        result = {name: name if short in repeated else short for name, short in result.items()}
    return {name: short for name, short in result.items() if short != name}


def _repeated(result: dict[str, str]) -> set[str]:
    """Return the short names that several kernels have."""
    seen: set[str] = set()
    return {short for short in result.values() if short in seen or seen.add(short)}


@lru_cache(1 << 14)
def short_name(name: str) -> str:
    """Return the short name of a kernel. Other kernels may have the same."""
    text = name if len(name) > MAX_CHARS else demangle(name) or name
    for rule in RULES if len(text) <= MAX_CHARS else ():
        if (match := rule.pattern.search(text)) and (short := rule.shorten(match)):
            return " ".join(short.split())
    return name


def _distinct_names(short: str, group: list[str]) -> list[str]:
    """Return different short names of kernels with the same short name."""
    words = [_numbered(_WORD.findall(demangle(name) or name)) for name in group]
    common = set[tuple[str, int]](words[0]).intersection(*words[1:])
    shown = set(_WORD.findall(short))
    details = [
        list(dict.fromkeys(word for word, number in row if (word, number) not in common and word not in shown))
        for row in words
    ]
    lengths = range(1, MAX_DETAILS + 1)
    texts = next(
        (texts for length in lengths if len(set(texts := [" ".join(d[:length]) for d in details])) == len(group)),
        [" ".join([*d[:2], f"#{number}"]) for number, d in enumerate(details, 1)],
    )
    return [f"{short} [{text}]" if text else short for text in texts]


def _numbered(words: list[str]) -> list[tuple[str, int]]:
    """Return words with the number of their earlier occurrences."""
    counts: dict[str, int] = {}
    numbered: list[tuple[str, int]] = []
    for word in words:
        counts[word] = counts.get(word, 0) + 1
        numbered.append((word, counts[word]))
    return numbered


def _function_words(text: str, dtype: str = "") -> tuple[str, str]:
    """Return the operation of a functor or a lambda of PyTorch, and its precision: `mul`, `f32`."""
    name = parse_cpp_name(text)
    lambdas: list[str] = re.findall(r"\{lambda\(([^{}]*?)\)#\d+\}$", text)
    owner = parse_cpp_name(_without_lambdas(text))
    if owner.last in _WRAPPERS:
        position = _WRAPPERS[owner.last]
        if len(owner.arguments) > position:
            kind = first_dtype(owner.arguments[:position]) if position else ""
            return _function_words(owner.arguments[position], dtype or kind)
    types: list[str] = lambdas[-1].split(",") if lambdas else []
    dtype = dtype or first_dtype(owner.arguments) or first_dtype(reversed(types)) or first_dtype(name.arguments)
    plain = _FUNCTION_AFFIXES.sub("", _FUNCTION_AFFIXES.sub("", owner.last)) or owner.last
    return _CAMEL_CASE.sub("_", plain).lower(), dtype


def _without_lambdas(text: str) -> str:
    """Return a text up to the first lambda or call operator outside of template arguments."""
    depth = 0
    for match in re.finditer(r"[<>]|::\{lambda|::operator\(\)", text):
        sign = match.group()
        if sign.startswith("::") and depth == 0:
            return text[: match.start()]
        depth += (sign == "<") - (sign == ">" and text[match.start() - 1] != "-")
    return text


def _elementwise(match: re.Match[str]) -> str | None:
    name = parse_cpp_name(match.string)
    arguments = [a for a in name.arguments if not a.lstrip("-").rstrip("u").isdigit()]
    if not arguments:
        return None
    function = next((a for a in arguments if not dtype_of(a)), arguments[0])
    operation, dtype = _function_words(function, first_dtype(arguments[:1]))
    form = match["form"].strip("_")
    if form in ("index", "scatter_gather"):  # the only types are those of indices
        return f"{form.replace('_', '/')} {operation.removesuffix('_internal')}"
    width = name.arguments[0] if form == "vectorized" and name.arguments[0].isdigit() else ""
    return f"elementwise {operation} {dtype} {f'vec{width}' if width else form or 'strided'}"


def _reduction(match: re.Match[str]) -> str | None:
    arguments = parse_cpp_name(match.string).arguments
    if len(arguments) < 3:
        return None
    operation, dtype = _function_words(arguments[2], first_dtype(parse_cpp_name(arguments[2]).arguments[:1]))
    return f"reduce {operation} {dtype} {'x'.join(arguments[:2])}"


def _multi_tensor(match: re.Match[str]) -> str | None:
    arguments = parse_cpp_name(match.string).arguments
    functors = [a for a in arguments if "Functor" in a.partition("<")[0]]
    if not functors:
        return None
    functor = parse_cpp_name(functors[0])
    update = re.sub(r"(?:Math)?Functor$", "", functor.last)
    operation = next((parse_cpp_name(a).last for a in arguments if a.startswith("std::")), "")
    return f"multi-tensor {update} {operation} {first_dtype(functor.arguments) or first_dtype(arguments)}"


def _triton(match: re.Match[str]) -> str | None:
    fusion = parse_fusion(match.string)
    if not fusion:
        return None
    number = match.string.rpartition("_")[2]
    kind = (fusion.kind or "").replace("_", " ")
    return f"Triton {kind} {'+'.join(fusion.operators)} #{number}"


def _wrapped(match: re.Match[str]) -> str | None:
    """Return the short name of the kernel class that a generic launcher runs."""
    arguments = [a for a in parse_cpp_name(match.string).arguments if not a.isdigit()]
    if not arguments:
        return None
    inner = arguments[0]
    return library_words(inner) or short_name(f"void {inner}()")


def _library(match: re.Match[str]) -> str | None:
    return library_words(match.string)


def _nccl(match: re.Match[str]) -> str:
    words = match["rest"].replace("_t", "").split("_")
    collective, rest = words[0], [word for word in words[1:] if word]
    dtypes = [dtype_of(word) for word in rest if dtype_of(word)]
    others = [word.lower() if word.isupper() and len(word) > 2 else word for word in rest if not dtype_of(word)]
    operation = [word for word in others if word in ("Sum", "Prod", "Min", "Max", "MinMax", "PreMulSum", "SumPostDiv")]
    return " ".join(["NCCL", collective, *operation, *dtypes, *(word for word in others if word not in operation)])


def _flash(match: re.Match[str]) -> str | None:
    name = parse_cpp_name(match.string)
    traits = next((t for a in name.arguments if (t := parse_cpp_name(a)).last.endswith("_traits")), CppName(""))
    sizes = [a for a in traits.arguments[:3] if a.isdigit()]
    operation = re.sub(r"_?kernel$|^flash_", "", name.last).replace("_", " ")
    shape = f"head {sizes[0]} {'x'.join(sizes[1:])}" if len(sizes) == 3 else ""
    return f"FlashAttention {operation} {first_dtype(traits.arguments) or first_dtype(name.arguments)} {shape}"


def _ascend(match: re.Match[str]) -> str:
    return match["kernel"] if match["kernel"] == match["call"] else f"{match['kernel']} ({match['call']})"


def _cpp(match: re.Match[str]) -> str | None:
    """Return the library and the function of any C++ kernel, and the first precision among its arguments."""
    name = parse_cpp_name(match.string)
    path = _NAMESPACES.sub("", name.path)
    parts = [part for part in path.split("::") if part and not part.startswith(("_GLOBAL_", "ROCPRIM_"))]
    if not parts:
        return None
    scope = parts[0] if len(parts) > 1 else ""
    return f"{scope and scope + '::'}{parts[-1]} {first_dtype(name.arguments)}"


RULES: tuple[Rule, ...] = (
    Rule(pattern(r"^(?:void )?at::native::(?:\W\w+ \w+\W::)?(?P<form>\w*?)elementwise_kernel\w*<"), _elementwise),
    Rule(pattern(r"at::native::reduce_kernel<"), _reduction),
    Rule(pattern(r"multi_tensor_apply_kernel<"), _multi_tensor),
    Rule(pattern(r"^(?:graph_\d+_)?triton_"), _triton),
    Rule(pattern(r"^nccl(?:Dev)?Kernel_(?P<rest>\w+)"), _nccl),
    Rule(pattern(r"flash(?:_attn)?::flash_\w*<|^(?:void )?flash_(?:fwd|bwd)\w*<"), _flash),
    Rule(pattern(r"^aclnn(?P<call>\w{1,80}?)_\w{1,80}?_(?P<kernel>\w{1,80})$"), _ascend),
    Rule(pattern(r"^(?:void )?(?:\w+::)*(?:device_kernel|Kernel2?|kentry|trampoline_kernel)<"), _wrapped),
    Rule(pattern(r"gemm|gemv|scudnn|hcudnn|xmma|nvjet|Cijk|igemm|fmha|sdpa|bmm|matmul_ogs", re.IGNORECASE), _library),
    Rule(_SHORTENED, _cpp),
)
