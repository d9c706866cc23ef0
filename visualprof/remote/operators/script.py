"""The script that runs one call of an operator alone: the call as literals, and the source of `torch_call`."""

from __future__ import annotations

import ast
from importlib.resources import files
from pprint import pformat

from visualprof.remote.operators import Call, checked

HEAD = '''"""Measures one operator alone, as it was called in a recorded run: {operator}.

    python {file} [--device cpu|cuda] [--repeats N] [--threads N]

Needs PyTorch and nothing else. Made by visualprof from a profile: shapes, strides, types and numbers of the call.
Values of tensors are random. The last line that it prints is the result as JSON.
"""

'''


def script(call: Call) -> str:
    """A file of Python that needs PyTorch alone. Raises: ValueError: the call may not become code."""
    checked(call)
    source = files("visualprof.remote.operators").joinpath("torch_call.py").read_text("utf-8")
    first = ast.parse(source).body[0]  # the docstring of the module
    code = "\n".join(source.splitlines()[first.end_lineno or 0 :]).strip()
    parts = {"OPERATOR": call.operator, "ARGUMENTS": call.arguments, "RECORDED": call.recorded}
    data = "\n".join(f"{name} = {pformat(value, width=110, sort_dicts=False)}" for name, value in parts.items())
    end = 'if __name__ == "__main__":\n    sys.exit(main(OPERATOR, ARGUMENTS, RECORDED))\n'
    return f"{HEAD.format(operator=call.operator, file=file_name(call, 'py'))}{data}\n\n{code}\n\n\n{end}"


def file_name(call: Call, suffix: str) -> str:
    """A name for a file of the call: `aten_addmm.py`."""
    return f"{call.operator.replace('::', '_').strip('_')}.{suffix}"
