"""Operations of recurrent layers (LSTM, GRU, RNN) of cuDNN, MIOpen and oneDNN."""

from __future__ import annotations

import math
from collections.abc import Sequence

from visualprof.views.measure.launches.operator_call import NotRecorded, OperatorCall, Tensor
from visualprof.views.measure.work.call_work import CallWork, Formula

CUDNN_MASK, MIOPEN_MASK = 21, 20  # position of which gradients are requested, in the backward
WEIGHT_GRADIENT = 3  # index in that mask


def _list_weights(call: OperatorCall) -> Sequence[Tensor]:
    weights = call.inputs[1] if len(call.inputs) > 1 else None
    if not isinstance(weights, list):
        raise NotRecorded
    return weights


def _single_weights(call: OperatorCall) -> Sequence[Tensor]:
    return [call.tensor(position) for position in (1, 2)]


def _forward_work(call: OperatorCall, weights: Sequence[Tensor], passes: float) -> CallWork:
    """Return the work of using each matrix a number of times per time step and batch row.

    The data has three dimensions, or two if sequences of different lengths are packed.
    """
    data = call.tensor(0)
    used = sum(matrix.elements for matrix in weights if len(matrix.shape) == 2)
    if len(data.shape) not in (2, 3) or not used:
        raise NotRecorded
    return CallWork("recurrent", passes * 2.0 * math.prod(data.shape[:-1]) * used, math.nan, data.type)


def _forward(call: OperatorCall) -> CallWork:
    return _forward_work(call, _list_weights(call), 1)


def _onednn_forward(call: OperatorCall) -> CallWork:
    return _forward_work(call, _single_weights(call), 1)


def _backward(mask: int) -> Formula:
    """Return the formula of a backward: the forward's work for the data, through time, and again for the weights.

    Only the gradient of the weights can be left out. Without a recorded mask it counts.
    """

    def work(call: OperatorCall) -> CallWork:
        wanted = call.flags(mask)
        return _forward_work(call, _list_weights(call), 2 if not wanted or wanted[WEIGHT_GRADIENT] else 1)

    return work


def _onednn_backward(call: OperatorCall) -> CallWork:
    return _forward_work(call, _single_weights(call), 2)


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("aten::_cudnn_rnn", "aten::miopen_rnn"), _forward),
    "aten::_cudnn_rnn_backward": _backward(CUDNN_MASK),
    "aten::miopen_rnn_backward": _backward(MIOPEN_MASK),
    "aten::mkldnn_rnn_layer": _onednn_forward,
    "aten::mkldnn_rnn_layer_backward": _onednn_backward,
}
