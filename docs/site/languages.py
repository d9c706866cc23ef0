"""Languages of the documentation site, and its texts that are not on a page."""

from __future__ import annotations

from typing import Literal

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
UNTRANSLATED = "本页暂无中文版，以下为英文原文。"
