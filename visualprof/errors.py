"""The errors that visualprof raises on purpose: each class names its HTTP status and its page of the documentation.

A command ends with exit code 2 on each error. remote/queue/errors.py has the errors of the job queue. Other modules
define the errors that only they raise.
"""

from __future__ import annotations


class VisualprofError(Exception):
    """An error with a message for the user and a hint what to do next.

    Args:
        error: What went wrong and where: one sentence, safe to show to any user.
        hint: What to do about it; may be empty.

    Attributes:
        status: HTTP status of the answer. A subclass sets it as `class NotFound(VisualprofError, status=404)`, or has
            that of its base.
        docs_page: Page of the documentation that explains the error, without `.md`, and its heading, such as
            "formats#ranks", or "". Set like `status`. The web UI has a text per page: `about.page` in definitions.json.
    """

    status = 500
    docs_page = ""

    def __init_subclass__(cls, status: int | None = None, docs_page: str | None = None) -> None:
        super().__init_subclass__()
        cls.status = cls.status if status is None else status
        cls.docs_page = cls.docs_page if docs_page is None else docs_page

    def __init__(self, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.hint = hint

    def __reduce__(self) -> tuple[type[VisualprofError], tuple[str, str]]:
        return type(self), (self.error, self.hint)

    def __str__(self) -> str:
        return f"{self.error} ({self.hint})" if self.hint else self.error


class SourceError(VisualprofError, status=422):
    """A file cannot be opened or unpacked, or is too large when unpacked."""


class FormatError(VisualprofError, status=422, docs_page="formats#damaged-files"):
    """The content of a file violates its format."""


class UnknownFormat(FormatError, docs_page="formats"):
    """No reader recognizes the content of the file."""


class EmptyFile(FormatError, docs_page="capture#files"):
    """The file has no content yet."""


class MissingData(VisualprofError, status=409, docs_page="capture#topics"):
    """A view needs a column that this trace does not have."""


class BadParameter(VisualprofError, status=400):
    """A view or request parameter has a wrong name or value."""


class WrongType(BadParameter, status=415):
    """The body does not have the type that the route accepts.

    Pages of other sites can send some types without permission.
    """


class NotFound(VisualprofError, status=404):
    """There is no such run, worker, span, view or file."""


class NotReady(VisualprofError, status=503):
    """The file is queued or being parsed; ask again."""


class Forbidden(VisualprofError, status=403, docs_page="access-control"):
    """The server was started with --read-only."""


class UnsafeUser(BadParameter, docs_page="remote#decide-who-may-submit-models"):
    """An agent would run as root, so that the code of a model could change the machine."""
