"""Classify any exception of a runtime as the reason why a task failed."""

from __future__ import annotations

import errno
import re

from visualprof.messages import msg
from visualprof.remote.protocol import TaskFailure

NO_MEMORY = re.compile(r"out of memory|bad_?alloc|failed to allocate|cannot allocate|not enough memory", re.IGNORECASE)
NO_NETWORK = re.compile(r"name resolution|name or service not known|network is unreachable|couldn't connect to", re.I)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ERROR_LINE = re.compile(r"(?:extra message: |(?=\w+(?:Error|Exception): ))(.+)")
CODE_LOCATION = re.compile(r"Exception (raised )?from |Check '.*' failed at |frame #\d+|backtrace:|/.+\.so")
MAX_CHARACTERS, MAX_LINES = 500, 4  # of an error text


def to_failure(error: BaseException) -> TaskFailure:
    """Return an exception as a task failure with a reason, a text and a hint."""
    if isinstance(error, TaskFailure):
        return error
    sentence = _sentence(error)
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return TaskFailure(
            "disk_full",
            msg("child.agents_disk_full", f"the disk of the agent is full: {sentence}"),
            msg("child.free_space_agent", "free some space on the agent's disk"),
        )
    if isinstance(error, MemoryError) or NO_MEMORY.search(sentence):
        return TaskFailure(
            "out_of_memory", sentence, msg("child.try_smaller_batch_another", "try a smaller batch, or another machine")
        )
    if isinstance(error, ImportError):
        hint = msg(
            "child.runtimes_interpreter_lacks_package",
            "the runtime's interpreter is missing a package; reinstall the runtime",
        )
        return TaskFailure("no_runtime", sentence, hint)
    if NO_NETWORK.search(str(error)):
        hint = msg(
            "child.nothing_can_fetched_here",
            "downloads are not possible here: name a local folder with --data, TORCH_HOME or HF_HUB_CACHE",
        )
        return TaskFailure("input_error", msg("child.there_no_network", f"no network access: {sentence}"), hint)
    return TaskFailure("model_error", sentence, msg("child.log_whole_message", "see the log for the whole message"))


def _sentence(error: BaseException) -> str:
    """Shorten a message: its last line that names an error, otherwise its first lines without C++ locations."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    error_lines = [match[1] for line in lines if (match := ERROR_LINE.match(line))]
    first = " ".join([line for line in lines if not CODE_LOCATION.match(line)][:MAX_LINES])
    sentence = error_lines[-1] if error_lines else ": ".join(filter(None, (type(error).__name__, first)))
    return sentence[:MAX_CHARACTERS]
