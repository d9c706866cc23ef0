"""The script that runs one call of an operator alone: the call as literals, and the source that runs it here."""

from __future__ import annotations

import ast
from importlib.resources import files
from pprint import pformat

from visualprof.remote.operators import TITLES, Call, check_call

SOURCES = ("comparison.py", "clock.py")  # and that of the framework
NEEDS = {"onnxruntime": "onnxruntime and onnx"}  # others the framework
HEAD = '''"""Measures one operator alone, as it was called in a recorded run: {operator}.

    python {file} [--device cpu|cuda] [--repeats N] [--threads N]

Needs {needs} and nothing else. Made by visualprof from a profile: shapes, types, numbers and modes of the call.
Values of tensors are random. The last line that it prints is the result as JSON.
"""

'''


def script(call: Call) -> str:
    """A file of Python that needs the framework alone. Raises: ValueError: the call may not become code."""
    check_call(call)
    parts = {"CALL": call.parts(), "RECORDED": call.recorded}
    data = "\n".join(f"{name} = {pformat(value, width=110, sort_dicts=False)}" for name, value in parts.items())
    code = "\n\n\n".join(map(_body, (*SOURCES, f"{call.framework}_call.py")))
    end = 'if __name__ == "__main__":\n    sys.exit(main(operator, DEVICE, CALL, RECORDED))\n'
    head = HEAD.format(
        operator=call.operator, file=file_name(call, ".py"), needs=NEEDS.get(call.framework, TITLES[call.framework])
    )
    return f"{head}{data}\n\n{code}\n\n\n{end}"


def _body(name: str) -> str:
    """The source of a module without its docstring and without what it imports of this package."""
    source = files("visualprof.remote.operators").joinpath(name).read_text("utf-8")
    own, lines = ast.parse(source).body[1:], source.splitlines()
    left_out = {
        line
        for one in own
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("visualprof.")
        for line in range(one.lineno, (one.end_lineno or 0) + 1)
    }
    kept = [line for number, line in enumerate(lines, 1) if number >= own[0].lineno and number not in left_out]
    return "\n".join(kept).strip()


def file_name(call: Call, suffix: str) -> str:
    """A name for a file of the call: `aten_addmm.py`."""
    return f"{call.operator.replace('::', '_').replace('.', '_').strip('_')}{suffix}"
