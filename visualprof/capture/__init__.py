"""Recording of what only the user's process knows; needs the standard library and the framework that is there already.

`profile` records some steps (docs/capture.md). `add_graph` writes a model as its author nested it
(docs/graph-format.md).
"""

from __future__ import annotations

from visualprof.capture.graph import FRAMEWORKS, UnsupportedModel, add_graph
from visualprof.capture.options import CaptureBusy, CaptureError, CaptureWarning, Options
from visualprof.capture.profile import Profile, profile
from visualprof.capture.session import Recording, begin
from visualprof.capture.static import profile_static
from visualprof.capture.topics import ALL, MEMORY, OPERATOR, SCOPE, SHAPE_INFER, SYNC, TENSOR_LIFETIME, Topics

__all__ = [
    "ALL", "FRAMEWORKS", "MEMORY", "OPERATOR", "SCOPE", "SHAPE_INFER", "SYNC", "TENSOR_LIFETIME", "CaptureBusy",
    "CaptureError", "CaptureWarning", "Options", "Profile", "Recording", "Topics", "UnsupportedModel", "add_graph",
    "begin", "profile", "profile_static",
]  # fmt: skip
