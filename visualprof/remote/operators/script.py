"""The script that runs one call of an operator alone: the call as literals, and the source that runs it here."""

from __future__ import annotations

import ast
from importlib.resources import files
from pprint import pformat

from visualprof.remote.operators import Call, checked

SOURCES = ("comparison.py", "torch_call.py")
HEAD = '''"""Measures one operator alone, as it was called in a recorded run: {operator}.

    python {file} [--device cpu|cuda] [--repeats N] [--threads N]

Needs PyTorch and nothing else. Made by visualprof from a profile: shapes, strides, types and numbers of the call.
Values of tensors are random. The last line that it prints is the result as JSON.
"""

'''


def script(call: Call) -> str:
    """A file of Python that needs PyTorch alone. Raises: ValueError: the call may not become code."""
    checked(call)
    parts = {"OPERATOR": call.operator, "ARGUMENTS": call.arguments, "RECORDED": call.recorded}
    data = "\n".join(f"{name} = {pformat(value, width=110, sort_dicts=False)}" for name, value in parts.items())
    code = "\n\n\n".join(map(_body, SOURCES))
    end = 'if __name__ == "__main__":\n    sys.exit(main(OPERATOR, ARGUMENTS, RECORDED))\n'
    return f"{HEAD.format(operator=call.operator, file=file_name(call, '.py'))}{data}\n\n{code}\n\n\n{end}"


def _body(name: str) -> str:
    """The source of a module without its docstring and without what it imports of this package."""
    source = files("visualprof.remote.operators").joinpath(name).read_text("utf-8")
    lines = source.splitlines()[ast.parse(source).body[0].end_lineno or 0 :]
    return "\n".join(line for line in lines if not line.startswith("from visualprof.")).strip()


def file_name(call: Call, suffix: str) -> str:
    """A name for a file of the call: `aten_addmm.py`."""
    return f"{call.operator.replace('::', '_').strip('_')}{suffix}"
