"""Names of content. `hashlib` would load OpenSSL for it, 2 ms of a start."""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # a Python that has it elsewhere
    from hashlib import blake2b

__all__ = ["blake2b"]
