"""Messages to users: each has a stable id, its English text is at the call, and catalogs hold the translations.

`frontend/src/locales/server` holds the catalogs: `en.json` is extracted from the sources (`make messages`), the other
languages are written by hand. Standard library only: agents and capture use this module as well.
"""

from __future__ import annotations


def msg(id: str, text: str) -> str:
    """Return `text`, the English message that `id` identifies in the catalogs.

    Args:
        id: `area.words`, a literal, the same for the same text. Translations refer to it, so it stays when the text is
            improved.
        text: The English text, a literal or an f-string. Its n-th expression is the placeholder `{n}` of a
            translation, counted from 0.
    """
    return text
