"""Rows of a statement that DuckDB has run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class Cursor:
    """The rows of a statement. The transaction ends when it is closed.

    Args:
        connection: The connection, which has run the statement.
        convert: Returns the error to raise for an error of DuckDB.

    Attributes:
        columns: Names of the columns, made unique.
        types: Their SQL types.
    """

    def __init__(self, connection: DuckDBPyConnection, convert: Callable[[BaseException], BaseException]) -> None:
        self._connection, self._convert = connection, convert
        described: list[Any] = connection.description or []
        self.columns = unique_names([str(entry[0]) for entry in described])
        self.types = [str(entry[1]) for entry in described]

    def fetch(self, count: int) -> list[tuple[Any, ...]]:
        """Return at most `count` further rows, [] at the end.

        Raises:
            QueryStopped: The statement needs too much memory, or was interrupted.
        """
        try:
            return self._connection.fetchmany(count)
        except BaseException as error:
            raise self._convert(error) from error

    def close(self) -> None:
        """End the transaction. Whatever the statement changed is discarded."""
        self._connection.execute("ROLLBACK")

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def unique_names(names: Sequence[str]) -> list[str]:
    """Return names in which repeated ones have a number: dur, dur_1."""
    used: set[str] = set()
    unique: list[str] = []
    for name in names:
        number, candidate = 0, name
        while candidate in used:
            number += 1
            candidate = f"{name}_{number}"
        used.add(candidate)
        unique.append(candidate)
    return unique
