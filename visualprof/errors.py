"""Every error that visualprof raises on purpose.

VisualprofError
├── SourceError        a file cannot be opened, unpacked or is too large when unpacked
├── FormatError        its content violates its format
│   ├── UnknownFormat  no reader recognizes the content
│   └── EmptyFile      no content yet: being written, or a run that recorded nothing
├── MissingData        a view needs a column that this trace does not have
├── BadParameter       a view or request parameter has a wrong name or value
│   └── WrongType      a body does not have the type that the route accepts
├── NotFound           no such run, worker, span, view or file
├── NotReady           the file is queued or being parsed
└── Forbidden          the server is read-only

Errors of the job queue, each with its HTTP status, are defined in remote/queue/errors.py.
"""

from __future__ import annotations


class VisualprofError(Exception):
    """An error with a message for the user and a hint what to do next.

    Args:
        error: What went wrong and where: one sentence, safe to show to any user.
        hint: What to do about it; may be empty.

    Attributes:
        status: HTTP status of the answer.
        docs_page: Page of the documentation that explains the error, without `.md`, or "".
    """

    status = 500
    docs_page = ""

    def __init__(self, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.hint = hint

    def __reduce__(self) -> tuple[type[VisualprofError], tuple[str, str]]:
        return type(self), (self.error, self.hint)

    def __str__(self) -> str:
        return f"{self.error} ({self.hint})" if self.hint else self.error


class SourceError(VisualprofError):
    """A file cannot be opened or unpacked, or is too large when unpacked."""

    status = 422


class FormatError(VisualprofError):
    """The content of a file violates its format."""

    status = 422
    docs_page = "formats"


class UnknownFormat(FormatError):
    """No reader recognizes the content of the file."""


class EmptyFile(FormatError):
    """The file has no content yet."""

    docs_page = "capture"


class MissingData(VisualprofError):
    """A view needs a column that this trace does not have."""

    status = 409
    docs_page = "capture"


class BadParameter(VisualprofError):
    """A view or request parameter has a wrong name or value."""

    status = 400


class WrongType(BadParameter):
    """The body does not have the type that the route accepts.

    Pages of other sites can send some types without permission.
    """

    status = 415


class NotFound(VisualprofError):
    """There is no such run, worker, span, view or file."""

    status = 404


class NotReady(VisualprofError):
    """The file is queued or being parsed; ask again."""

    status = 503


class Forbidden(VisualprofError):
    """The server was started with --read-only."""

    status = 403
    docs_page = "access-control"
