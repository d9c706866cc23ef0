"""Seeded mutations of what users send: zips of cases, arrays, settings, YAML files."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable, Mapping

import numpy as np

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
VALUES = (
    "1:1:1",
    "1:" * 50 + "1",
    "-1:59.5",
    "0x1F",
    "0x_",
    "0b_",
    "0x" + "f" * 4000,
    "1" * 5000,
    "1" * 90,
    "1e999",
    ".inf",
    ".nan",
    "-.INF",
    "._",
    "0o17",
    "017",
    "08",
    "1_000",
    "2020-99-99",
    "2020-01-01",
    "2020-01-01T25:61:61Z",
    "!!timestamp x",
    "!!int x",
    "!!int 1:1",
    "!!float 0x_",
    "!!bool maybe",
    "!!binary ====",
    "!!set {a, b}",
    "!!omap [a: 1]",
    "!!null x",
    "!!python/object/apply:os.system [id]",
    "!<tag:x> 1",
    "&a *a",
    "&a [*a]",
    "*missing",
    "[" * 900,
    "[" * 50 + "]" * 50,
    "{" * 300,
    "- " * 200,
    "? " * 100,
    '"\\ud800"',
    '"\\0"',
    '"\\x1b[31m"',
    "'",
    '"',
    "|\n x",
    ">",
    "%TAG ! x",
    "---",
    "...",
    "<<",
    "\t",
    "yes",
    "No",
    "~",
    "",
    " ",
    "#",
    "a: b: c",
    "[1, [2, [3, [4, [5]]]]]",
    "{a: {b: {c: {d: {e: 1}}}}}",
    "\u2028",
    "\ufeff",
    "é" * 300,
)
NAMES = (
    "a",
    "a/",
    "a/b",
    "A/B",
    "net",
    "net/numpy",
    "net/numpy/",
    "net/configurations.yaml/x",
    "../x",
    "/x",
    "x" * 300,
    "é" * 140,
    "😀" * 100,
    "a/" * 20 + "b",
    "a\\b",
    "C:x",
    "con",
    "a\x00b",
    "a\nb",
    "\x1b[31m",
    ".",
    "..",
    " ",
    "a.",
    "net/data/x",
    "case.json",
    "net/vendor_config/nvidia.yaml",
    "net/requirements.txt",
    "__MACOSX/x",
    "net/numpy/__init__.py",
    "\u202e.py",
    "net/link",
)


def mutate_bytes(data: bytes, random: random.Random) -> bytes:
    """Flip, cut, repeat or insert bytes at one to eight places."""
    mutated = bytearray(data)
    for _ in range(random.randint(1, 8)):
        at = random.randrange(len(mutated)) if mutated else 0
        kind = random.randrange(6)
        if kind == 0:
            mutated[at : at + 1] = bytes([random.randrange(256)])
        elif kind == 1:
            mutated[at : at + 4] = random.choice((b"\xff" * 4, b"\0" * 4, b"\x01\0\0\0", b"PK\x01\x02"))
        elif kind == 2:
            del mutated[at : at + random.randint(1, 64)]
        elif kind == 3:
            mutated[at:at] = mutated[at : at + random.randint(1, 64)]
        elif kind == 4:
            mutated[at:at] = random.randbytes(random.randint(1, 16))
        elif random.random() < 0.2:
            del mutated[at:]
    return bytes(mutated)


def yaml_text(random: random.Random) -> str:
    """Keys with odd values, sometimes broken further."""
    keys = (
        "batch_size",
        "flops",
        "compiler",
        "title",
        "data",
        "weights",
        "framework",
        "<<",
        "1",
        "a b",
        "é",
        "null",
        "2020-01-01",
    )
    lines = [f"{random.choice(keys)}: {random.choice(VALUES)}" for _ in range(random.randint(1, 6))]
    if random.random() < 0.3:
        lines += [
            "x: &x [1,1,1,1,1,1]",
            *(f"{name}: &{name} [{','.join(['*' + before] * 9)}]" for before, name in ("xy", "yz", "zw")),
        ]
    if random.random() < 0.2:
        lines += ["m: &m {a: 1}", "n: &n {<<: [*m, *m, *m]}", "o: {<<: [*n, *n, *n]}"]
    return "\n".join(lines)


def case_zip(files: Mapping[str, bytes], random: random.Random) -> bytes:
    """The zip of a case with odd names, odd contents or damaged bytes."""
    contents = dict(files)
    kind = random.randrange(4)
    if kind == 0:
        name = random.choice([name for name in contents if name.endswith(".yaml")])
        contents[name] = mutate_bytes(yaml_text(random).encode("utf-8", "surrogatepass"), random)
    elif kind == 1:
        name = random.choice([name for name in contents if name.endswith(".yaml")])
        contents[name] = yaml_text(random).encode("utf-8", "surrogatepass")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", random.choice(METHODS)) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
        if kind == 2:
            for name in random.sample([name for name in NAMES if name not in contents], random.randint(1, 4)):
                info = zipfile.ZipInfo("x")
                info.filename = name
                info.external_attr = random.choice((0, 0o100644, 0o120777, 0o010644, 0o020644, 0o040755)) << 16
                archive.writestr(info, random.choice(VALUES).encode("utf-8", "surrogatepass"))
    packed = data.getvalue()
    return mutate_bytes(packed, random) if kind == 3 or random.random() < 0.2 else packed


def array_zip(random: random.Random) -> bytes:
    """An .npz with damaged bytes."""
    data = io.BytesIO()
    save: Callable[..., None] = random.choice((np.savez, np.savez_compressed))
    save(data, a=np.arange(50), b=np.zeros((3, 4), np.float32))
    packed = data.getvalue()
    if random.random() < 0.5:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            arrays = {name: archive.read(name) for name in archive.namelist()}
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w", random.choice(METHODS)) as archive:
            for name, content in arrays.items():
                archive.writestr(name, content)
        packed = data.getvalue()
    return mutate_bytes(packed, random)
