"""Seeded mutations of what users send: zips of cases, arrays, settings, YAML files."""

from __future__ import annotations

import io
import random
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence

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
    "&a {b: *a}",
    "&a {*a : 1}",
    "{<<: *missing}",
    "{<<: [1, 2]}",
    "!!merge <<",
    "{? [1, 2] : 3}",
    "{[a]: b}",
    "!!str 1",
    "!!seq {a: 1}",
    "!!map [1]",
    "!!python/name:os.system",
    "!!python/tuple [1]",
    "!<tag:yaml.org,2002:int> x",
    "0b" + "1" * 4000,
    "0o" + "7" * 4000,
    "-0x" + "f" * 60,
    "1e" + "9" * 300,
    "1_" * 200 + "1",
    "9999-12-31T23:59:59.999999999999+99:99",
    "0000-00-00",
    "12:30:45.5",
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


def odd_zips(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Zips in unusual or hostile forms. All of them also contain `files`."""
    first = next(iter(files))
    plain = _packed(files)
    start = plain.index(b"PK\x01\x02")
    encrypted = bytearray(plain)
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        encrypted[encrypted.index(mark) + at] |= 1
    overlapping = bytearray(plain)  # the directory's second entry points to the data of its first
    second = plain.index(b"PK\x01\x02", start + 4)
    overlapping[second + 42 : second + 46] = plain[start + 42 : start + 46]
    huge = bytearray(plain)
    huge[start + 24 : start + 28] = b"\xfe\xff\xff\xff"
    end = plain.rindex(b"PK\x05\x06")
    return {
        "zip64": _packed(files, force_zip64=True),
        "a duplicate name": _packed([*files.items(), (first, b"other")]),
        "an absolute name": _packed([*files.items(), ("/etc/x.npy", b"x")]),
        "a name with a drive": _packed([*files.items(), ("C:\\x.npy", b"x")]),
        "a name with backslashes": _packed([*files.items(), ("..\\..\\x.npy", b"x")]),
        "a name with NUL": _packed([*files.items(), ("aZx.npy", b"x")]).replace(b"aZx.npy", b"a\0x.npy"),
        "an empty name": _packed([*files.items(), ("Z", b"x")]).replace(b"\x01\x00\x00\x00Z", b"\x00\x00\x00\x00Z"),
        "a link": _packed([*files.items(), ("link.npy", b"/etc/passwd")], mode=0o120777),
        "a device": _packed([*files.items(), ("device.npy", b"")], mode=0o020666),
        "an encrypted member": bytes(encrypted),
        "overlapping members": bytes(overlapping),
        "a size of 4 GiB": bytes(huge),
        "an unknown method": plain[: start + 10] + b"\x63\x00" + plain[start + 12 :],
        "a comment with an end in it": plain[:end] + plain[end:-2] + b"\x16\x00" + plain[end:],
        "text in front": b"#!/bin/sh\n" + plain,
        "an empty zip": b"PK\x05\x06" + bytes(18),
        "more entries than there are": plain[: end + 8] + b"\xff\x7f\xff\x7f" + plain[end + 12 :],
        "a directory at its own end": plain[: end + 16] + len(plain).to_bytes(4, "little") + plain[end + 20 :],
        "a zip in a zip": _packed({"net/inner.zip": plain}),
    }


def _packed(
    files: Mapping[str, bytes] | Sequence[tuple[str, bytes]], force_zip64: bool = False, mode: int = 0o100644
) -> bytes:
    data = io.BytesIO()
    items = list(files.items()) if isinstance(files, Mapping) else list(files)
    with warnings.catch_warnings(), zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # duplicate names
        for i, (name, content) in enumerate(items):
            info = zipfile.ZipInfo("x")
            info.filename, info.external_attr = name, (mode if i == len(items) - 1 else 0o100644) << 16
            with archive.open(info, "w", force_zip64=force_zip64) as file:
                file.write(content)
    return data.getvalue()
