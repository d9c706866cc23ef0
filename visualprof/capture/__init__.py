"""Record profiles and module graphs inside the user's process.

`profile` records a few steps; `listen` and `watch` record on request or when steps get slow (docs/capture.md).
`add_graph` writes a model with its module hierarchy (docs/graph-format.md). `LogWriter` logs scalars, images and other
run data (docs/views/scalars.md). Needs only the standard library and the framework that the process has imported;
arrays need numpy.
"""

from __future__ import annotations

from visualprof.capture.automatic import autowrap
from visualprof.capture.graph import FRAMEWORKS, UnsupportedModel, add_graph
from visualprof.capture.listen import Listener, listen, step
from visualprof.capture.log.writer import LogWriter
from visualprof.capture.options import CaptureBusy, CaptureError, CaptureWarning, Options
from visualprof.capture.profile import Profile, profile
from visualprof.capture.session import Recording, begin
from visualprof.capture.static import profile_static
from visualprof.capture.topics import ALL, MEMORY, OPERATOR, SCOPE, SHAPE_INFER, SYNC, TENSOR_LIFETIME, Topics
from visualprof.capture.watch import watch

__all__ = [
    "ALL",
    "FRAMEWORKS",
    "MEMORY",
    "OPERATOR",
    "SCOPE",
    "SHAPE_INFER",
    "SYNC",
    "TENSOR_LIFETIME",
    "CaptureBusy",
    "CaptureError",
    "CaptureWarning",
    "Listener",
    "LogWriter",
    "Options",
    "Profile",
    "Recording",
    "Topics",
    "UnsupportedModel",
    "add_graph",
    "autowrap",
    "begin",
    "listen",
    "profile",
    "profile_static",
    "step",
    "watch",
]
