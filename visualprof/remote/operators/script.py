"""Create a script that runs one operator call alone: the call as literals, and the source code that runs it."""

from __future__ import annotations

import ast
from importlib.resources import files
from pprint import pformat

from visualprof.remote.operators import TITLES, Call, check_call

SOURCES = ("comparison.py", "clock.py")  # and the file of the framework
NEEDS = {"onnxruntime": "onnxruntime and onnx"}  # other frameworks need only themselves
HEAD = '''"""Measure one operator alone, as it was called in a recorded run: {operator}.

    python {file} [--device cpu|cuda] [--repeats N] [--threads N]

Needs only {needs}. Created by visualprof from a profile: shapes, types, numbers and modes of the call.
Values of tensors are random. The last line of the output is the result as JSON.
"""

'''


# The sources call `msg` of visualprof.messages, which a script cannot import.
MSG = '''def msg(id: str, text: str) -> str:
    """Return the text of a message."""
    return text'''


def script(call: Call) -> str:
    """Return a Python file that needs only the framework.

    Raises:
        ValueError: The call may not become code.
    """
    check_call(call)
    parts = {"CALL": call.parts(), "RECORDED": call.recorded}
    data = "\n".join(f"{name} = {pformat(value, width=110, sort_dicts=False)}" for name, value in parts.items())
    code = "\n\n\n".join((MSG, *map(_body, (*SOURCES, f"{call.framework}_call.py"))))
    end = 'if __name__ == "__main__":\n    sys.exit(main(operator, DEVICE, CALL, RECORDED))\n'
    head = HEAD.format(
        operator=call.operator, file=file_name(call, ".py"), needs=NEEDS.get(call.framework, TITLES[call.framework])
    )
    return f"{head}{data}\n\n{code}\n\n\n{end}"


def _body(name: str) -> str:
    """Return the source of a module without its docstring and without imports of this package."""
    source = files("visualprof.remote.operators").joinpath(name).read_text("utf-8")
    statements, lines = ast.parse(source).body[1:], source.splitlines()
    left_out = {
        line
        for statement in statements
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("visualprof.")
        for line in range(statement.lineno, (statement.end_lineno or 0) + 1)
    }
    remaining = [
        line for number, line in enumerate(lines, 1) if number >= statements[0].lineno and number not in left_out
    ]
    return "\n".join(remaining).strip()


def file_name(call: Call, suffix: str) -> str:
    """Return a file name for the call: `aten_addmm.py`."""
    return f"{call.operator.replace('::', '_').replace('.', '_').strip('_')}{suffix}"
