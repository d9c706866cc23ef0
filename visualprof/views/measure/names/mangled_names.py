"""Demangle the names of C++ functions (Itanium ABI) as far as kernels need: the name and its template arguments.

Function parameters are not read. Unknown syntax yields None, and so do names that expand to very long texts.

Source: https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling
"""

from __future__ import annotations

import re

_MAX_CHARS = 20_000  # of any part: back references can double the text with every few characters
_MAX_DEPTH = 60
_BUILTIN_TYPES = {
    "v": "void",
    "w": "wchar_t",
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "n": "__int128",
    "o": "unsigned __int128",
    "f": "float",
    "d": "double",
    "e": "long double",
    "g": "__float128",
    "z": "...",
    "DF16_": "_Float16",
    "DF16b": "__bf16",
    "DF32_": "_Float32",
    "DF64_": "_Float64",
    "Dh": "half",
    "Di": "char32_t",
    "Ds": "char16_t",
    "Du": "char8_t",
    "Da": "auto",
    "Dc": "decltype(auto)",
    "Dn": "decltype(nullptr)",
}
_STANDARD_NAMES = {
    "St": "std",
    "Sa": "std::allocator",
    "Sb": "std::basic_string",
    "Ss": "std::string",
    "Si": "std::istream",
    "So": "std::ostream",
    "Sd": "std::iostream",
}
_TYPE_SUFFIXES = {"P": "*", "R": "&", "O": "&&", "K": " const", "V": " volatile", "r": " restrict"}
_BUILTIN = re.compile(r"DF\d+[_b]|D[hisuacn]|[vwbcahstijlmxynofdegz]")
_OPERATORS = {
    "cl": "operator()",
    "ix": "operator[]",
    "pl": "operator+",
    "mi": "operator-",
    "ml": "operator*",
    "dv": "operator/",
    "eq": "operator==",
    "ne": "operator!=",
    "lt": "operator<",
    "gt": "operator>",
    "aS": "operator=",
}


class _UnknownSyntaxError(Exception):
    """The name has syntax that is not read here."""


def demangle(name: str) -> str | None:
    """Return the name of a function with its template arguments, None if `name` is not mangled or cannot be read.

    `_ZN2at3addILi4EfEEvPT0_` is `at::add<4, float>`.
    """
    match = re.match(r"_?_Z", name)
    if not match:
        return None
    try:
        return _Parser(name, match.end()).read_name()
    except (_UnknownSyntaxError, ValueError, IndexError, RecursionError):
        return None


class _Parser:
    """A recursive-descent parser at a position of a mangled name. Methods read a part and return its text."""

    def __init__(self, text: str, position: int) -> None:
        self._text, self._position = text, position
        self._components: list[str] = []  # components that back references name, in order
        self._arguments: list[str] = []  # template arguments that `T_` names
        self._depth = 0

    def read_name(self) -> str:
        """Read a name."""
        if self._skip("N"):
            return self._nested_name()
        if self._skip("Z"):
            return self._local_name()
        if self._peek() == "S" and self._text[self._position + 1] != "t":
            name = self._substitution()
        else:
            name = self._unscoped_name()
            if self._peek() == "I":
                self._remember(name)
        return name + self._template_arguments(outermost=True) if self._peek() == "I" else name

    def _unscoped_name(self) -> str:
        prefix = "std::" if self._skip("St") else ""
        return prefix + self._unqualified_name()

    def _local_name(self) -> str:
        """Read an entity inside of a function. The types of the function's parameters are skipped."""
        function = self.read_name()
        while not self._skip("E"):
            self._type()
        if self._skip("s"):
            return function
        entity = self.read_name()
        if self._skip("_"):
            self._digits()
        return f"{function}::{entity}"

    def _nested_name(self) -> str:
        while self._skip("K") or self._skip("V") or self._skip("r") or self._skip("R") or self._skip("O"):
            pass
        name = ""
        while not self._skip("E"):
            if self._peek() == "I":
                name += self._template_arguments(outermost=True)
            elif self._peek() == "S" and self._text[self._position + 1] != "t":
                name = self._substitution()
                continue
            elif self._peek() == "T":
                name = self._template_parameter()
            elif not name and self._skip("St"):
                name = "std"
                continue
            else:
                last = self._unqualified_name(name)
                name = f"{name}::{last}" if name else last
            if self._peek() != "E":
                self._remember(name)
        return name

    def _unqualified_name(self, scope: str = "") -> str:
        self._skip("L")
        if self._peek().isdigit():
            return self._source_name()
        if self._skip("Ul"):
            types: list[str] = []
            while not self._skip("E"):
                types.append(self._type())
            number = self._digits()
            self._expect("_")
            return f"{{lambda({', '.join(t for t in types if t != 'void')})#{int(number or -1) + 2}}}"
        if self._skip("Ut"):
            self._digits()
            self._expect("_")
            return "{unnamed}"
        if (code := self._text[self._position : self._position + 2]) in ("C1", "C2", "C3", "D0", "D1", "D2"):
            self._position += 2
            return ("~" if code[0] == "D" else "") + scope.rpartition("::")[2]
        if code in _OPERATORS:
            self._position += 2
            return _OPERATORS[code]
        raise _UnknownSyntaxError

    def _source_name(self) -> str:
        length = int(self._digits())
        name = self._text[self._position : self._position + length]
        if len(name) < length:
            raise _UnknownSyntaxError
        self._position += length
        while self._skip("B"):
            self._source_name()  # an ABI tag
        return "(anonymous namespace)" if name.startswith("_GLOBAL__N") else name

    def _template_arguments(self, outermost: bool = False) -> str:
        """Read template arguments. `T_` names an argument of the outermost name."""
        self._expect("I")
        arguments: list[str] = []
        if outermost and self._depth == 0:
            self._arguments = arguments  # an argument may name an earlier one
        while not self._skip("E"):
            arguments.extend(self._template_argument())
        return f"<{', '.join(arguments)}>"

    def _template_argument(self) -> list[str]:
        """Read a template argument; a pack is several."""
        if self._skip("J"):
            pack: list[str] = []
            while not self._skip("E"):
                pack.extend(self._template_argument())
            return pack
        if self._skip("Tn"):
            self._type()
            return self._template_argument()
        if self._skip("Ty"):
            return self._template_argument()
        if self._peek() == "L":
            return [self._literal()]
        if self._skip("X"):
            value = self._expression()
            self._expect("E")
            return [value]
        return [self._type()]

    def _expression(self) -> str:
        """Read a literal or the address of a function."""
        if self._skip("ad"):
            return f"&{self._expression()}"
        if self._peek() == "L":
            return self._literal()
        raise _UnknownSyntaxError

    def _literal(self) -> str:
        self._expect("L")
        if self._skip("_Z"):
            inner = _Parser(self._text, self._position)
            inner._components, inner._depth = self._components, self._depth + 1  # they share their back references
            name = inner.read_name()
            self._position = inner._position
            while not self._skip("E"):
                self._type()
            return name
        kind = self._type()
        value = self._text[self._position : self._text.index("E", self._position)]
        self._position += len(value) + 1
        value = value.replace("n", "-")
        if kind == "bool":
            return {"0": "false", "1": "true"}.get(value, value)
        return value if kind in _BUILTIN_TYPES.values() else f"({kind}){value}"

    def _type(self) -> str:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _UnknownSyntaxError
        try:
            return self._type_at_depth()
        finally:
            self._depth -= 1

    def _type_at_depth(self) -> str:
        if match := _BUILTIN.match(self._text, self._position):
            self._position = match.end()
            return _BUILTIN_TYPES[match.group()]
        first = self._peek()
        if first in _TYPE_SUFFIXES:
            self._position += 1
            return self._remember(self._type() + _TYPE_SUFFIXES[first])
        if self._skip("Dp"):
            return self._remember(self._type())
        if self._skip("F"):
            types: list[str] = []
            while not self._skip("E"):
                types.append(self._type())
            return self._remember(f"{types[0]} ({', '.join(types[1:])})")
        if self._skip("A"):
            size = self._digits()
            self._expect("_")
            return self._remember(f"{self._type()}[{size}]")
        if first == "T":
            name = self._remember(self._template_parameter())
        elif first == "S" and self._text[self._position + 1] != "t":
            name = self._substitution()
            if self._peek() != "I":
                return name
        elif first in ("N", "Z"):
            return self._remember(self.read_name())
        else:
            name = self._remember(self._unscoped_name())
        return self._remember(name + self._template_arguments()) if self._peek() == "I" else name

    def _template_parameter(self) -> str:
        self._expect("T")
        digits = self._digits()
        self._expect("_")
        number = int(digits) + 1 if digits else 0
        return self._arguments[number] if number < len(self._arguments) else f"T{number}"

    def _substitution(self) -> str:
        """Read a back reference or an abbreviation."""
        code = self._text[self._position : self._position + 2]
        if code in _STANDARD_NAMES:
            self._position += 2
            return _STANDARD_NAMES[code]
        match = re.compile(r"S([0-9A-Z]*)_").match(self._text, self._position)
        if not match:
            raise _UnknownSyntaxError
        self._position = match.end()
        return self._components[int(match[1], 36) + 1 if match[1] else 0]

    def _remember(self, text: str) -> str:
        """Add a component for back references."""
        if len(text) > _MAX_CHARS or len(self._components) > _MAX_CHARS:
            raise _UnknownSyntaxError
        self._components.append(text)
        return text

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _skip(self, text: str) -> bool:
        """Read a text if it comes next."""
        if self._position >= len(self._text):
            raise _UnknownSyntaxError
        is_next = self._text.startswith(text, self._position)
        self._position += len(text) if is_next else 0
        return is_next

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            raise _UnknownSyntaxError

    def _digits(self) -> str:
        start = self._position
        while self._peek().isdigit():
            self._position += 1
        return self._text[start : self._position]
