"""Read names of library kernels, with underscores between operation, precision, tile and layout."""

from __future__ import annotations

import re
from collections.abc import Iterable

from visualprof.reader.patterns import pattern
from visualprof.views.measure.names.cpp_names import parse_cpp_name

_DTYPES = {
    "f64": ("double", "f64", "fp64", "float64"),
    "f32": ("float", "f32", "fp32", "float32", "f32f32"),
    "tf32": ("tf32", "tfloat32_t", "tf32f32", "tf32tf32"),
    "f16": ("half", "__half", "half_t", "f16", "fp16", "float16", "f16f16", "Half", "_Float16", "half_float"),
    "bf16": (
        "bf16",
        "bfloat16",
        "BFloat16",
        "__bf16",
        "__nv_bfloat16",
        "__hip_bfloat16",
        "bfloat16_t",
        "hip_bfloat16",
        "nv_bfloat16",
        "bf16bf16",
        "Bfloat16",
    ),
    "fp8": (
        "fp8",
        "f8",
        "e4m3",
        "e5m2",
        "Float8_e4m3fn",
        "Float8_e5m2",
        "Float8_e4m3fnuz",
        "__nv_fp8_e4m3",
        "__nv_fp8_e5m2",
        "float_e4m3_t",
        "float_e5m2_t",
        "E4m3",
        "E5m2",
        "MxE4m3",
    ),
    "fp4": ("fp4", "mxfp4", "nvfp4", "e2m1", "E2m1", "MxE2m1", "float_e2m1_t"),
    "i64": ("long", "int64", "i64", "int64_t", "long long"),
    "i32": ("int", "int32", "i32", "int32_t"),
    "i16": ("short", "int16", "int16_t"),
    "i8": ("s8", "i8", "int8", "int8_t", "signed char"),
    "u8": ("u8", "uint8", "uint8_t", "unsigned char"),
    "bool": ("bool",),
    "c64": ("complex<float>", "cf32"),
    "c128": ("complex<double>", "cf64"),
}
_DTYPE_OF = {word: dtype for dtype, words in _DTYPES.items() for word in words}
_QUALIFIERS = pattern(r"^const | const$|[ &*]+$|^(?:\w+::)+(?=\w+(?:<[\w ]+>)?$)")
_INDEX_TYPES = frozenset({"i64", "i32", "bool"})  # seldom the precision of a kernel if it has another one

_TILE3 = pattern(r"(?<![\dx])(\d+x\d+x\d+)(?![\dx])")
_TILE2 = pattern(r"(?<![\dx])(\d+x\d+)(?![\dx])")
_STAGES = pattern(r"_(?:stages_)?(\d+)x\d+(?=_|$)")
_LAYOUT = pattern(r"(?<![A-Za-z])([nt]{2,3}|[NT]{2,3})(?=_|$|\d*_)")
_TENSOR_LAYOUT = pattern(r"(?<![a-z])(nchw|nhwc|ndhwc|ncdhw)(?![a-z])")
_EXPLICIT = pattern(
    r"(?<![a-z\d])(tf32f32|tf32|bf16bf16|bf16|f16f16|fp16|f16|fp8|e4m3|e5m2|s8|i8|fp64|f64|fp32|f32f32|f32)(?![a-z\d])"
)
_INSTRUCTION = pattern(
    r"(?<![a-z])(?P<kind>[a-z]?)(?P<shape>884|1688|16816|161616|8816|16832)(?P<type>tf32|bf16|f16|s8)?"
)
_INSTRUCTION_DTYPES = {"884": "f16", "1688": "tf32", "16816": "f16", "161616": "f16", "8816": "i8", "16832": "i8"}
_BLAS = pattern(r"(?<![a-z])(?P<type>[sdhczi])(?:gemm|gemv|cudnn)|(?<![a-z])gc(?=gemm)")
_BLAS_DTYPES = {"s": "f32", "d": "f64", "h": "f16", "c": "c64", "z": "c128", "i": "i8"}
_OPERATION = pattern(r"fprop|dgrad|wgrad|gemv|gemm|bmm|scudnn|hcudnn")
_TENSILE = pattern(
    r"^Cijk_A(?P<a>[il]{2})k?_?B(?P<b>[jl]{2})k?_(?P<type>[A-Z0-9a-z]+?)_(?P<rest>.*?)MT(?P<tile>\d+x\d+x\d+)"
)
_TENSILE_DTYPES = {"S": "f32", "D": "f64", "H": "f16", "B": "bf16", "F8": "fp8", "I8": "i8", "C": "c64", "Z": "c128"}
_MIOPEN = pattern(
    r"^igemm_(?P<pass>fwd|bwd|wrw)_\w{0,60}?(?P<layout>nhwc|nchw)\w{0,60}?_(?P<type>bf16|fp16|fp32)_\w{0,60}?bt(?P<tile>\d+x\d+x\d+)"
)
_NVJET = pattern(
    r"^nvjet_(?:sm\d+_)?(?P<types>[a-z]+)_(?P<tile>\d+x\d+)_(?P<depth>\d+)x\d+.*?(?:_(?P<layout>[NT]{2,3}))?$"
)
_NVJET_DTYPES = {"h": "f16", "t": "bf16", "q": "fp8", "s": "f32"}
_CUDNN_ATTENTION = pattern(
    r"^cudnn_generated\w{0,60}?sdpa\w{0,60}?_(?P<pass>fprop|bprop)_\w{0,60}?(?P<type>bf16|f16|fp8|e4m3)_.*?(?P<tile>\d+x\d+x\d+)"
)
_FMHA = pattern(
    r"^fmha_(?:cutlass(?P<pass>[FB])|v2_flash_attention|\w{0,60}?(?:fwd|bwd))_(?P<type>bf16|f16|f32|fp16)_\w{0,60}?(?P<tile>\d+x\d+)"
)
_TRTLLM_FMHA = pattern(
    r"^fmhaSm\d+\w{0,60}?Kernel_Qkv(?P<type>E4m3|E5m2|Bfloat16|Fp16)\w{0,60}?H(?P<head>\d+)(?P<rest>\w{0,60})Q(?P<q>\d+)Kv(?P<kv>\d+)"
)
_TRTLLM_GEMM = pattern(r"^(?P<op>bmm|gemm)_(?P<types>\w{1,60}?)_t(?P<tile>\d+x\d+x\d+)\w{0,60}?_(?P<layout>[NT]{2})_")
_TRITON_MATMUL = pattern(r"^_matmul_ogs_(?P<layout>[NT]+)_(?P<types>[a-z0-9]+)_(?P<tile>\d+x\d+x\d+)")
_CUTE_SIZE = r"(?:cute::)?(?:C|constant<int, ?)<?(\d+)>?"
_CUTLASS_SHAPE = pattern(rf"GemmShape<(\d+), ?(\d+), ?(\d+)>|tuple<{_CUTE_SIZE}, ?{_CUTE_SIZE}, ?{_CUTE_SIZE}")
_CUTLASS_CONV = pattern(r"(Fprop|Dgrad|Wgrad)")
_CUTLASS_DTYPE = pattern(
    r"(?<!\w)(half_t|bfloat16_t|tfloat32_t|float_e4m3_t|float_e5m2_t|__half|__nv_bfloat16|float|double)(?!\w)"
)
_CUTLASS_CLASS = pattern(r"cutlass\w*::(?:conv|gemm)::(?:kernel|device)::\w*(?:Conv|Gemm)\w*<")
_NAMED_CUTLASS = pattern(r"^cutlass\w*?_\w*(?:gemm|fprop|dgrad|wgrad)\w*$")


def dtype_of(text: str) -> str:
    """Return the precision that a C++ type or a word names, "" if it names none: `c10::BFloat16` is `bf16`."""
    word = text.strip()
    for _ in range(3):
        word = _QUALIFIERS.sub("", word)
    return _DTYPE_OF.get(word, "")


def first_dtype(texts: Iterable[str]) -> str:
    """Return the first precision among types. Types of indices count only if there is no other one."""
    dtypes = [dtype for dtype in map(dtype_of, texts) if dtype]
    return next((dtype for dtype in dtypes if dtype not in _INDEX_TYPES), dtypes[0] if dtypes else "")


def library_words(name: str) -> str | None:
    """Return library, operation, precision, tile and layout of a kernel, None for a name of another kind."""
    text = name.removeprefix("void ")
    for read in (_tensile, _miopen, _nvjet, _attention, _tensorrt_llm, _triton_matmul, _cutlass, _blas):
        if words := read(text):
            return " ".join(filter(None, words))
    return None


def _tensile(text: str) -> list[str] | None:
    match = _TENSILE.match(text)
    if not match:
        return None
    code = match["type"]
    dtype = next(
        (_TENSILE_DTYPES[key] for key in ("F8", "I8", code[0]) if code.startswith(key) and key in _TENSILE_DTYPES), ""
    )
    layout = ("t" if match["a"] == "li" else "n") + ("t" if match["b"] == "jl" else "n")
    library = "hipBLASLt" if "UserArgs" in match["rest"] or "Bias" in match["rest"] else "rocBLAS"
    return [library, "gemm", dtype, match["tile"], layout]


def _miopen(text: str) -> list[str] | None:
    match = _MIOPEN.match(text)
    operation = {"fwd": "fprop", "bwd": "dgrad", "wrw": "wgrad"}
    return match and ["MIOpen conv", operation[match["pass"]], dtype_of(match["type"]), match["tile"], match["layout"]]


def _nvjet(text: str) -> list[str] | None:
    match = _NVJET.match(text)
    if not match:
        return None
    dtype = _NVJET_DTYPES.get(match["types"][0], "")
    return ["cuBLASLt nvjet gemm", dtype, f"{match['tile']}x{match['depth']}", (match["layout"] or "").lower()]


def _attention(text: str) -> list[str] | None:
    if match := _CUDNN_ATTENTION.match(text):
        return [
            "cuDNN attention",
            {"fprop": "fwd", "bprop": "bwd"}[match["pass"]],
            dtype_of(match["type"]),
            match["tile"],
        ]
    if match := _TRTLLM_FMHA.match(text):
        rest = re.sub(r"(?<=[a-z\d])(?=[A-Z])", " ", match["rest"]).lower()
        rest = re.sub(r"\bp\d+\b|var seq", "", rest)
        return [
            "TensorRT-LLM attention",
            dtype_of(match["type"]),
            f"head {match['head']}",
            f"{match['q']}x{match['kv']}",
            rest,
        ]
    if match := _FMHA.match(text):
        direction = {"F": "fwd", "B": "bwd"}.get(match["pass"] or "", "bwd" if "bwd" in text else "fwd")
        return ["memory-efficient attention", direction, dtype_of(match["type"]), match["tile"]]
    return None


def _tensorrt_llm(text: str) -> list[str] | None:
    match = _TRTLLM_GEMM.match(text)
    if not match:
        return None
    types: list[str] = re.findall(r"MxE2m1|MxE4m3|E2m1|E4m3|Bfloat16|Fp16|Fp32", match["types"].rpartition("_")[0])
    inputs = dict.fromkeys(map(dtype_of, types or match["types"].split("_")[:1]))
    activation = "swiglu" if "swiGlu" in text else ""
    return ["TensorRT-LLM", match["op"], "x".join(inputs), match["tile"], match["layout"].lower(), activation]


def _triton_matmul(text: str) -> list[str] | None:
    match = _TRITON_MATMUL.match(text)
    if not match:
        return None
    return [
        "Triton matmul_ogs",
        match["types"],
        match["tile"],
        match["layout"].lower(),
        "swiglu" if "swiglu" in text else "",
    ]


def _cutlass(text: str) -> list[str] | None:
    """Read a class of CUTLASS, as an argument of a launcher, or a name that CUTLASS generated."""
    path = parse_cpp_name(text).path
    if not _CUTLASS_CLASS.search(text):
        return _blas(path) if _NAMED_CUTLASS.match(path) and path != text else None
    shape, conv, dtype = _CUTLASS_SHAPE.search(text), _CUTLASS_CONV.search(text), _CUTLASS_DTYPE.search(text)
    operation = f"conv {conv[1].lower()}" if conv else "gemm"
    tile = "x".join(filter(None, shape.groups())) if shape else ""
    return ["cutlass", operation, dtype_of(dtype[1]) if dtype else "", tile]


def _blas(text: str) -> list[str] | None:
    """Read a name of cuBLAS, cuDNN, xmma or CUTLASS. Names with template arguments are of another kind."""
    operation = _OPERATION.search(text)
    tile = _TILE3.search(text) or _TILE2.search(text)
    if not operation or not tile or re.search(r"[<(:]", text):
        return None
    size = tile[1]
    if size.count("x") == 1 and (stages := _STAGES.search(text, tile.end())):
        size = f"{size}x{stages[1]}"
    operations = {
        "scudnn": "conv",
        "hcudnn": "conv",
        "fprop": "conv fprop",
        "dgrad": "conv dgrad",
        "wgrad": "conv wgrad",
    }
    layout = _TENSOR_LAYOUT.findall(text) or _LAYOUT.findall(text)
    return [
        _library_name(text),
        operations.get(operation[0], operation[0]),
        _library_dtype(text),
        size,
        layout[-1].lower() if layout else "",
    ]


def _library_name(text: str) -> str:
    if text.startswith("cutlass"):
        return "cutlass"
    if "cudnn" in text or "grad" in text or "fprop" in text:
        return "cuDNN"
    return "cuBLAS"


def _library_dtype(text: str) -> str:
    """Return the precision of the inputs: by its name, by the instruction of the tensor cores, or as in BLAS."""
    if match := _EXPLICIT.search(text):
        return dtype_of(match[1])
    if match := _INSTRUCTION.search(text):
        return dtype_of(match["type"] or "") or _INSTRUCTION_DTYPES[match["shape"]]
    match = _BLAS.search(text)
    return _BLAS_DTYPES.get(match["type"] or "c", "") if match else ""
