"""BLAKE2b for content keys. Importing `hashlib` would load OpenSSL, which takes 2 ms at start-up."""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # a Python without this private module
    from hashlib import blake2b

__all__ = ["blake2b"]
