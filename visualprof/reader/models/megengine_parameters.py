"""Parameters of the operators of a MegEngine model: stride, padding, mode and the like.

An operator has a table of parameters; its kind is a number of a union, and its fields have numbers, defaults and enums.
Fields that have their default are absent from the file. Source: schema_v2.fbs and opr_param_defs.fbs of MegEngine.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, Protocol

_FORMATS = {"int": "<i", "uint": "<I", "ulong": "<Q", "float": "<f", "double": "<d", "bool": "<?"}
_ENUMS = {
    "ConvMode": "CROSS_CORRELATION CONVOLUTION",
    "Sparse": "DENSE GROUP",
    "Format": "NCHW NHWC NHWCD4 NCHW4 NCHW8 NCHW32 NCHW88 NCHW44 NCHW44_DOT NCHW4_NCHW32 NCHW32_NCHW4 NCHW4_NCHW "
    "NHWC_NCHW NHWC_NCHW4_IC_SMALL NCHW_NCHW4_IC_SMALL CHWN4 NCHW64 NCHW4_NHWC",
    "Format3D": "NCDHW NDHWC",
    "DataType3D": "FLOAT FLOAT_IO16xC32",
    "ComputeMode": "DEFAULT FLOAT32",
    "Nonlinearity": "IDENTITY RELU SIGMOID H_SWISH",
    "CellNonlinearity": "IDENTITY RELU TANH",
    "PoolMode": "MAX AVERAGE AVERAGE_COUNT_EXCLUDE_PADDING",
    "RoiMode": "MAX AVERAGE",
    "ParamDim": "DIM_11HW DIM_1CHW DIM_1C11 DIM_111C",
    "Phase": "TRAINING INFERENCE",
    "MatrixFormat": "DEFAULT MK4 MK8 MK4_DOT",
    "Interpolation": "NEAREST LINEAR AREA CUBIC LANCZOS4",
    "Border": "REPLICATE REFLECT REFLECT_101 WRAP CONSTANT TRANSPARENT ISOLATED",
    "PaddingMode": "REPLICATE REFLECT CONSTANT",
    "ReduceMode": "SUM SUM_SQR PRODUCT MIN MAX MEAN",
    "ReduceType": "DEFAULT FLOAT_IO16xC32 FLOAT_O32xC32 FLOAT_O16xC32 QUINT_I8xO32 QINT_I8xO32",
    "Order": "ASCENDING DESCENDING",
    "Comparison": "EQ NEQ LT LEQ GT GEQ",
    "TopKMode": "KTH_ONLY VALUE_IDX_NOSORT VALUE_IDX_SORTED",
    "Collective": "REDUCE_SUM BROADCAST ALL_GATHER REDUCE_SCATTER_SUM ALL_REDUCE_SUM ALL_REDUCE_MAX ALL_REDUCE_MIN "
    "ALL_REDUCE_PROD GATHER SCATTER ALL_TO_ALL",
    "Elemwise": "RELU ABS ACOS ASIN CEIL COS EXP EXPM1 FLOOR LOG LOG1P NEGATE SIGMOID SIN TANH ABS_GRAD ADD FLOOR_DIV "
    "MAX MIN MOD MUL POW SIGMOID_GRAD SUB SWITCH_GT0 TANH_GRAD TRUE_DIV LOG_SUM_EXP LT LEQ EQ SHL SHR COND_LEQ_MOV "
    "FUSE_MUL_ADD3 FUSE_MUL_ADD4 FUSE_ADD_RELU FUSE_ADD_SIGMOID FUSE_ADD_TANH FAST_TANH FAST_TANH_GRAD ROUND RMULH "
    "ATAN2 ERF ERFINV ERFC ERFCINV H_SWISH H_SWISH_GRAD FUSE_ADD_H_SWISH NOT AND OR XOR SILU SILU_GRAD GELU GELU_GRAD",
    "QuantizedElemwise": "FUSE_MUL_ADD3_INT16x32x32x32 FUSE_MUL_ADD3_IXxF32xF32xI8 ROUND_SHR_SATURATE_IXxI8xI8 "
    "FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT16x16x16x8 FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT32x32x32x8 "
    "ROUND_SHR_SATURATE_IXxI8xI16 QADD QFUSE_ADD_RELU QMUL QMIN QMAX QSUB QTRUE_DIV QFUSE_ADD_SIGMOID QFUSE_ADD_TANH "
    "QRELU QABS QSIGMOID QEXP QTANH QFUSE_MUL_ADD3 QFAST_TANH QNEGATE QACOS QASIN QCEIL QCOS QEXPM1 QFLOOR QLOG QLOG1P "
    "QSIN QROUND QERF QERFINV QERFC QERFCINV QABS_GRAD QFLOOR_DIV QMOD QSIGMOID_GRAD QSWITCH_GT0 QTANH_GRAD QLT QLEQ "
    "QEQ QPOW QLOG_SUM_EXP QFAST_TANH_GRAD QATAN2 QCOND_LEQ_MOV QH_SWISH QFUSE_ADD_H_SWISH QH_SWISH_GRAD "
    "FUSE_MUL_ADD3_INT16xF32xF32xF32 MUL_INT16xF32xF32 FUSE_MUL_ADD3_UINT8xF32xF32xF32",
}
_PADDED = "pad_h:uint=0 pad_w:uint=0 stride_h:uint=1 stride_w:uint=1 dilate_h:uint=1 dilate_w:uint=1"
_QUANTIZED_RANGE = "qmin:int=-2147483648 qmax:int=2147483647"
_SEED = "seed:ulong=0"
# Per number of the union: the fields in order of their numbers, as `name:type=default`.
_FIELDS = {
    2: "axis:int=0",
    3: f"mode:ConvMode {_PADDED} sparse:Sparse format:Format compute_mode:ComputeMode",
    6: f"nonlineMode:Nonlinearity mode:ConvMode sparse:Sparse format:Format {_PADDED} compute_mode:ComputeMode",
    8: f"{_PADDED} window_h:uint=3 window_w:uint=3",
    9: "mode:PoolMode pad_h:uint=0 pad_w:uint=0 stride_h:uint=2 stride_w:uint=2 window_h:uint=2 window_w:uint=2 "
    "format:Format",
    10: "n:uint=5 k:float=2 alpha:float=0.0001 beta:float=0.75",
    11: "param_dim:ParamDim fwd_mode:Phase epsilon:double=0.0001 avg_factor:double=1 scale:float=1 bias:float=0",
    12: "mode:RoiMode scale:float=1",
    13: "imode:Interpolation=1 bmode:Border format:Format border_val:float=0",
    17: "mode:Elemwise",
    18: "mode:QuantizedElemwise",
    19: "exp:float=0",
    20: "transposeA:bool=0 transposeB:bool=0 compute_mode:ComputeMode format:MatrixFormat",
    22: "full_matrices:bool=0 compute_uv:bool=1",
    23: "mode:ReduceMode axis:int=2147483647 data_type:ReduceType",
    24: "axis:int=2147483647 exclusive:bool=1 reverse:bool=0",
    25: "mode:Comparison val:float=0 eps:float=0.000001",
    26: "order:Order",
    27: "is_non_overlapping:bool=0",
    29: "endpoint:bool=1",
    32: _SEED,
    33: f"{_SEED} mean:float=0 std:float=1",
    34: "vertical:bool=0 horizontal:bool=0",
    35: "clockwise:bool=1",
    38: "imode:Interpolation=1 border_mode:Border border_val:float=0 format:Format=1",
    40: "imode:Interpolation=1 format:Format=1",
    41: "mode:ConvMode pad_d:uint=0 pad_h:uint=0 pad_w:uint=0 stride_d:uint=1 stride_h:uint=1 stride_w:uint=1 "
    "dilate_d:uint=1 dilate_h:uint=1 dilate_w:uint=1 sparse:Sparse data_type:DataType3D format:Format3D",
    44: "mode:TopKMode",
    47: f"mode:ConvMode {_PADDED} spatial_groups_h:uint=1 spatial_groups_w:uint=1 sparse:Sparse format:Format "
    "computeMode:ComputeMode",
    48: "mode:RoiMode format:Format spatial_scale:float=1 offset:float=0 pooled_height:uint=1 pooled_width:uint=1 "
    "sample_height:uint=2 sample_width:uint=2",
    50: f"nonlineMode:Nonlinearity mode:ConvMode {_PADDED} sparse:Sparse format:Format compute_mode:ComputeMode",
    53: "axis:int=-1",
    54: "axis:int=7",
    58: "mode:Collective",
    64: "pattern:[int] ndim:uint=0",
    68: "imode:Interpolation=1 border_type:Border format:Format=1 scalar:float=0",
    70: "mode:PoolMode format:Format",
    73: _QUANTIZED_RANGE,
    74: _QUANTIZED_RANGE,
    76: _QUANTIZED_RANGE,
    84: "scale:float=1",
    85: "affine:bool=1 eps:float=0.00001 normalized_dim:ulong=1 normalized_size:ulong=1",
    86: f"drop_prob:float=0 {_SEED}",
    87: "nonlineMode:CellNonlinearity",
    88: "num_layers:uint=1 bidirectional:bool=0 bias:bool=1 hidden_size:uint=128 dropout:float=0 "
    "nonlineMode:CellNonlinearity fwd_mode:Phase",
    89: "num_layers:uint=1 bidirectional:bool=0 bias:bool=1 hidden_size:uint=128 proj_size:uint=0 dropout:float=0 "
    "fwd_mode:Phase",
    90: "axis:int=-1",
    91: "k:int=0",
}
_NO_AXIS = {23: 2147483647, 24: 2147483647, 53: -1, 54: 7}  # this axis stands for no axis


class ParameterTable(Protocol):
    """A table of a FlatBuffer."""

    def has(self, field: int) -> bool:
        """Return whether the file contains a field."""
        ...

    def number(self, field: int, form: str) -> int | float | bool:
        """Return a scalar."""
        ...

    def numbers(self, field: int) -> list[int]:
        """Return a vector of u32."""
        ...


class _Field(NamedTuple):
    name: str
    type: str
    default: float


def operator_parameters(kind: int, table: ParameterTable | None) -> dict[str, str]:
    """Return the parameters of an operator as text; empty if this kind of parameters is unknown.

    Args:
        kind: Number in the union of parameters.
        table: The operator's parameters.
    """
    if table is None:
        return {}
    parameters: dict[str, str] = {}
    for number, field in enumerate(_fields(kind)):
        if field.type == "[int]":
            parameters[field.name] = ", ".join(map(str, table.numbers(number)))
            continue
        form = _FORMATS.get(field.type, "<I")
        value = table.number(number, form) if table.has(number) else field.default
        if field.name == "axis" and value == _NO_AXIS.get(kind):
            continue
        parameters[field.name] = _text(field.type, value)
    return parameters


def _text(kind: str, value: float) -> str:
    """Return a value as text: the name of an enum's value, or a number without superfluous digits."""
    if kind in _ENUMS:
        names = _ENUMS[kind].split()
        return names[int(value)] if value < len(names) else str(int(value))
    if kind == "bool":
        return str(bool(value))
    return f"{value:.7g}" if kind in ("float", "double") else str(int(value))


@cache
def _fields(kind: int) -> tuple[_Field, ...]:
    """Return the fields of a kind of parameters."""
    fields: list[_Field] = []
    for entry in _FIELDS.get(kind, "").split():
        name, _, declaration = entry.partition(":")
        type_name, _, default = declaration.partition("=")
        fields.append(_Field(name, type_name, float(default or 0)))
    return tuple(fields)
