"""Freed memory is used again instead of new pages."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from visualprof.reader.allocator import keep_freed_memory, trim_heap

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if {keep}:
    keep_freed_memory()
np.ones(40 << 20, np.uint8)
first = faults()
for _ in range(4):
    np.ones(40 << 20, np.uint8)
print(faults() - first)
trim_heap()
"""


def page_faults(*, keep: bool) -> int:
    environment = {"NUMPY_MADVISE_HUGEPAGE": "0"}
    program = FAULTS.format(keep=keep)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed memory on request")
def test_columns_of_the_same_size_use_the_same_pages() -> None:
    assert page_faults(keep=True) < 1000 < 20_000 < page_faults(keep=False)
