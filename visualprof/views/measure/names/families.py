"""Group kernels and operators of different frameworks, devices and versions into families by their names."""

from __future__ import annotations

from visualprof.reader.patterns import pattern

_KERNELS = tuple(
    (pattern(text), family)
    for text, family in (
        (r"(?i)[nr]ccl(?:Dev)?Kernel_?(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv)", ""),
        (r"(?i)[nrh]ccl", "collective"),
        (r"(?i)wgrad", "wgrad"),
        (r"(?i)dgrad", "dgrad"),
        (r"(?i)fprop|implicit_convolve|scudnn|winograd|conv", "convolution"),
        (r"(?i)splitk_?reduce", "splitKreduce"),
        (r"(?i)flash|fmha|attention", "attention"),
        (r"(?i)gemm|nvjet|Cijk_|gemv|matmul", "gemm"),
        (r"(?i)bn_(?:fw|bw)|(?:batch|layer|rms|group)_?norm", "norm"),
        (r"(?i)nchw\w*nhwc|nhwc\w*nchw|transpose", "transpose"),
        (r"(?i)softmax", "softmax"),
        (r"(?i)pool", "pool"),
        # These are identified by the functor, a template argument.
        (r"multi_tensor_apply|reduce_kernel|elementwise_kernel", "functor"),
    )
)
_FUNCTORS = tuple(map(pattern, (r"\w*[Ff]unctor\w*", r"\w+_kernel_(?:cuda|impl)", r"\w+Ops?\b")))
_NUMBER = pattern(r"_?\d+$")

_OPERATORS = tuple(
    (pattern(text), family)
    for text, family in (
        (r"(?i)data_?loader", "dataloader"),
        (r"(?i)[nr]ccl|all_?reduce|all_?gather|reduce_?scatter|broadcast_?coalesced|c10d", "communication"),
        (r"(?i)optimizer|adam|sgd|momentum|lamb", "optimizer"),
        (r"(?i)attention|flash|fmha", "attention"),
        (r"(?i)conv(?!ert)", "convolution"),
        (r"(?i)mm(?:_|$|v2)|addmm|matmul|matrixmul|linear|gemm|(?:^|_)fc(?:$|_|\s)|einsum", "gemm"),
        (r"(?i)norm", "norm"),
        (r"(?i)softmax", "softmax"),
        (r"(?i)loss|cross_?entropy|nll", "loss"),
        (r"(?i)pool", "pool"),
        (r"(?i)embedding|gather|lookup|index_select", "embedding"),
        (r"(?i)relu|gelu|sigmoid|tanh|silu|swish|elu", "activation"),
        (r"(?i)dropout", "dropout"),
        (r"(?i)copy|cast|transpose|reshape|concat|(?:^|::)cat|slice|split|stack|memcpy|contiguous", "copy"),
        (r"(?i)sum|mean|reduce|argmax", "reduce"),
        (r"(?i)(?:^|[^a-z])(?:elementwise_)?(?:add|sub|mul|div|pow|sqrt|exp|clamp|fill|zero)", "elementwise"),
    )
)


def kernel_family(name: str) -> str:
    """Return what a kernel computes by its name: `gemm`, `wgrad`, the functor of an elementwise kernel, ...

    Template arguments, tile sizes and architectures are ignored. Returns "" for names that match no
    family.
    """
    for search, family in _KERNELS:
        if match := search.search(name):
            if family == "functor":
                functor = next((functor_match[0] for search in _FUNCTORS if (functor_match := search.search(name))), "")
                return functor.replace("CUDAFunctor_add", "AddFunctor")
            return family or match[1].lower()
    return _NUMBER.sub("", name) if name.startswith("triton_") else ""


def operator_family(name: str) -> str:
    """Return what an operator computes in any framework: `convolution`, `gemm`, ....

    "" for names that match no family.
    """
    return next((family for search, family in _OPERATORS if search.search(name)), "")
