"""LiteRT, formerly TensorFlow Lite.

Reads the subgraphs of a `.tflite`, a FlatBuffer of TensorFlow's schema.fbs, version 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from visualprof.messages import msg
from visualprof.reader.flatbuffer import FlatbufferError, Table, root_table
from visualprof.reader.graph import (
    ModelBuilder,
    ModelGraph,
    ModelTooLarge,
    Node,
    Scope,
    Value,
    split_scopes,
    tensor_bytes,
)
from visualprof.reader.models import ModelFormat
from visualprof.reader.source import Source

MAX_BYTES = 1 << 31  # of a FlatBuffer
MAX_RANK = 32
MAX_BODY_DEPTH = 32  # nested bodies
OMITTED_INPUT = -1  # an omitted input
# Types of TensorType.
DTYPES = tuple(
    """
    float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 complex128 uint64 resource
    variant uint32 uint16 int4 bfloat16 int2 uint4 float8_e4m3fn float8_e5m2
    """.split()
)
# Names of BuiltinOperator by their number.
OPERATOR_NAMES = tuple(
    """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP
    FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC
    LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX
    SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD
    UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE
    UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX
    DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER
    GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL
    NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT
    LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE
    RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2
    ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND
    HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY
    SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D
    IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
    CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL
    BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD
    UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR
    RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM
    STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION
    STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE
    STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR
    STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH
    STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE
    STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL
    STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE
    STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT
    STABLEHLO_CASE
    """.split()
)
CUSTOM_CODE, IF_CODE, WHILE_CODE = 32, 118, 119
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
ACTIVATION_FIELD, PADDING_FIELD = "fused_activation", "padding"
_STRIDES = (PADDING_FIELD, "stride_w", "stride_h")
# Fields of BuiltinOptions by number. The suffix ":b" means a byte, ":?" a boolean, ":f" a float.
OPTION_FIELDS: dict[int, tuple[str, ...]] = {
    1: (*_STRIDES, ACTIVATION_FIELD, "dilation_w", "dilation_h"),
    2: (*_STRIDES, "depth_multiplier", ACTIVATION_FIELD, "dilation_w", "dilation_h"),
    5: (*_STRIDES, "filter_width", "filter_height", ACTIVATION_FIELD),
    8: (ACTIVATION_FIELD, "weights_format:b", "keep_num_dims:?"),
    9: ("beta:f",),
    10: ("axis", ACTIVATION_FIELD),
    11: (ACTIVATION_FIELD,),
    21: (ACTIVATION_FIELD,),
    23: ("axis", "batch_dims"),
    27: ("keep_dims:?",),
    28: (ACTIVATION_FIELD,),
    29: (ACTIVATION_FIELD,),
    59: ("values_count", "axis"),
    75: ("alpha:f",),
    101: ("adj_x:?", "adj_y:?"),
}


def sniff(head: bytes) -> bool:
    """Return whether the identifier is that of the schema."""
    return head[4:8] == b"TFL3"


def read(source: Source) -> ModelGraph:
    """Read the first subgraph, and those that are its bodies. Weights are counted by their description."""
    data = source.read_all(
        MAX_BYTES, msg("models.litert_model", "a LiteRT model"), msg("models.one", "check that this is the right file")
    )
    builder = ModelBuilder(source.name, "tflite")
    try:
        _ModelWalker(builder, root_table(data)).model()
    except FlatbufferError as error:
        raise source.error(
            msg("models.damaged_litert_model", f"damaged LiteRT model ({error})"),
            msg("models.cut_while_being_copied", "was it cut while being copied?"),
        ) from error
    return builder.build()


class _Subgraph:
    """A subgraph with the tables of its tensors."""

    def __init__(self, table: Table) -> None:
        self.tensors = list(table.tables(0))
        self.inputs, self.outputs = table.numbers(1), table.numbers(2)
        self.operators = list(table.tables(3))

    def tensor(self, number: int) -> Table:
        if not 0 <= number < len(self.tensors):
            raise FlatbufferError(msg("models.there_no_tensor", f"there is no tensor {number}"))
        return self.tensors[number]


class _Rows:
    """Rows of a subgraph's tensors, created on first use, together with the nodes of weights."""

    def __init__(self, builder: ModelBuilder, subgraph: _Subgraph, weights: Sequence[int]) -> None:
        self._builder, self._subgraph, self._weights = builder, subgraph, weights
        self._rows: dict[int, int] = {}

    def row(self, number: int, outer: tuple[Scope, ...]) -> int:
        if number == OMITTED_INPUT:
            return self._builder.value(Value(""))
        if number not in self._rows:
            tensor = self._subgraph.tensor(number)
            value, size = _value(tensor), self._size(tensor)
            self._rows[number] = row = self._builder.value(replace(value, bytes=size) if size else value)
            if size:
                self._builder.node(Node(value.name, "Constant", outer, "constant", (), (row,)))
        return self._rows[number]

    def _size(self, tensor: Table) -> int:
        buffer = tensor.number(2, "I")
        return self._weights[buffer] if buffer < len(self._weights) else 0


class _ModelWalker:
    """Adds the subgraphs of a model to a graph."""

    def __init__(self, builder: ModelBuilder, model: Table) -> None:
        self._builder, self._model = builder, model
        self._operators = [_parse_operator_code(code) for code in model.tables(1)]
        self._weights = [buffer.length(0) or buffer.number(2, "Q") for buffer in model.tables(4)]
        self._subgraphs = [_Subgraph(table) for table in model.tables(2)]
        self._open: list[int] = []

    def model(self) -> None:
        """Add the first subgraph, with the names of its signature if there is only one."""
        model, builder = self._model, self._builder
        builder.producer = model.text(3).strip()
        builder.properties["schema"] = str(model.number(0, "I"))
        signatures = list(model.tables(7))
        names: tuple[dict[int, str], ...] = ({}, {})
        if len(signatures) == 1:
            builder.properties["signature"] = signatures[0].text(2)
            names = tuple({m.number(1, "I"): m.text(0) for m in signatures[0].tables(field)} for field in (0, 1))
        if len(self._subgraphs) > 1:
            builder.properties["subgraphs"] = str(len(self._subgraphs))
        self._subgraph(0, (), None, (), names)

    def _subgraph(
        self,
        number: int,
        outer: tuple[Scope, ...],
        outer_inputs: Sequence[int] | None,
        outer_outputs: Sequence[int],
        names: Sequence[dict[int, str]] = ({}, {}),
    ) -> None:
        """Add a subgraph.

        Args:
            number: Number of the subgraph.
            outer: Its scope.
            outer_inputs: Rows of the values that a body's inputs receive.
            outer_outputs: Rows of the values that a body's outputs produce.
            names: Names of inputs and outputs by tensor.
        """
        if not 0 <= number < len(self._subgraphs):
            raise FlatbufferError(msg("models.there_no_subgraph", f"there is no subgraph {number}"))
        if number in self._open or len(self._open) == MAX_BODY_DEPTH:
            raise ModelTooLarge(msg("models.subgraphs_hold_each_other", "its subgraphs hold each other"))
        self._open.append(number)
        subgraph = self._subgraphs[number]
        rows = _Rows(self._builder, subgraph, self._weights)
        for position, tensor in enumerate(subgraph.inputs):
            row = rows.row(tensor, outer)
            value = self._builder.value_at(row)
            name = names[0].get(tensor) or value.name
            self._builder.replace_value(row, replace(value, name=name))
            outer_input = tuple(outer_inputs[position : position + 1]) if outer_inputs else ()
            self._builder.node(Node(name, "Input", outer, "input", outer_input, (row,)))
        for operator in subgraph.operators:
            self._operator(operator, rows, outer)
        for position, tensor in enumerate(subgraph.outputs):
            row = rows.row(tensor, outer)
            name = names[1].get(tensor) or self._builder.value_at(row).name
            self._builder.node(
                Node(name, "Output", outer, "output", (row,), tuple(outer_outputs[position : position + 1]))
            )
        self._open.pop()

    def _operator(self, operator: Table, rows: _Rows, outer: tuple[Scope, ...]) -> None:
        """Add an operator, named after its first output."""
        code = operator.number(0, "I")
        if code >= len(self._operators):
            raise FlatbufferError(msg("models.there_no_operator", f"there is no operator {code}"))
        number, kind = self._operators[code]
        outputs = tuple(rows.row(tensor, outer) for tensor in operator.numbers(2))
        name = self._builder.value_at(outputs[0]).name if outputs else kind
        scope = (*outer, *split_scopes(name, "/")[0])
        inputs = tuple(rows.row(tensor, scope) for tensor in operator.numbers(1))
        bodies = _body_subgraphs(number, operator.table(4))
        body = self._builder.body(scope, name.rpartition("/")[2], "control") if bodies else None
        node = Node(
            name,
            kind,
            scope,
            kind="operator",
            inputs=inputs,
            outputs=outputs,
            attributes=_format_options(operator),
            body=body,
        )
        self._builder.node(node)
        for branch, subgraph in bodies.items():
            body_inputs = inputs[1:] if number == IF_CODE else inputs
            body_scope = (*node.full_scope, Scope(branch, "subgraph"))
            self._subgraph(subgraph, body_scope, body_inputs, () if branch == "cond" else outputs)


def _parse_operator_code(code: Table) -> tuple[int, str]:
    """Return number and name of an operator; in old files the number is a byte."""
    number = max(code.number(0, "b"), code.number(3, "i"))
    name = OPERATOR_NAMES[number] if 0 <= number < len(OPERATOR_NAMES) else f"operator {number}"
    return number, code.text(1) or name if number == CUSTOM_CODE else name


def _body_subgraphs(number: int, options: Table | None) -> dict[str, int]:
    branches = {IF_CODE: ("then_branch", "else_branch"), WHILE_CODE: ("cond", "body")}.get(number, ())
    return {branch: options.number(field, "i") for field, branch in enumerate(branches)} if options else {}


def _value(tensor: Table) -> Value:
    """Return a tensor. A fused operator's tensor has several names, of which the first is used."""
    name, code = tensor.text(3).partition(";")[0], tensor.number(1, "b")
    sizes = tensor.numbers(7) or tensor.numbers(0)
    if len(sizes) > MAX_RANK:
        raise FlatbufferError(msg("models.tensor_dimensions", f"a tensor of {len(sizes):,} dimensions"))
    dtype = DTYPES[code] if 0 <= code < len(DTYPES) else f"type {code}"
    shape = tuple("?" if size < 0 else size for size in sizes) if tensor.has(0) or tensor.number(8, "b") else None
    return Value(name, dtype, shape, tensor_bytes(dtype, shape))


def _format_options(operator: Table) -> dict[str, str]:
    """Return the options of common operators."""
    options = operator.table(4)
    fields = OPTION_FIELDS.get(operator.number(3, "B"), ()) if options else ()
    present = [(n, f) for n, f in enumerate(fields) if options and (options.has(n) or f == PADDING_FIELD)]
    return {field.partition(":")[0]: _format_option(options, number, field) for number, field in present if options}


def _format_option(options: Table, number: int, field: str) -> str:
    if field == PADDING_FIELD:
        return ("SAME", "VALID")[options.number(number, "b") & 1]
    if field == ACTIVATION_FIELD:
        code = options.number(number, "b")
        return ACTIVATIONS[code] if 0 <= code < len(ACTIVATIONS) else str(code)
    kind = field.partition(":")[2] or "i"
    value = options.number(number, kind)
    return f"{value:g}" if kind == "f" else str(value)


MODEL = ModelFormat("tflite", "LiteRT .tflite", 17, sniff, read, suffixes=(".tflite",))
