"""Every message of the server has an id, and its translations fit its English text (docs/adr/0040)."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

import pytest

from tests import translations
from tests.translations import CATALOGS, PACKAGE, Call, calls, calls_in, english, placeholders, read

#: Errors that reach users with two texts, the error and its hint.
ERRORS = re.compile(
    r"SourceError|FormatError|UnknownFormat|EmptyFile|MissingData|BadParameter|WrongType|NotFound|NotReady|Forbidden"
)
#: Not shown in the web UI: the command line, the agents' own API and log.
OUTSIDE_THE_UI = (
    "api/",
    "cli/",
    "capture/",
    "engines/",
    "mcp/",
    "notebook.py",
    "remote/agent/",
    "server/api/agent_link.py",
    "server/job_service.py",
)


@pytest.mark.slow
def test_ids_are_literal_and_texts_are_literals_or_f_strings() -> None:
    wrong = [call.place for call in calls() if not re.fullmatch(r"[a-z]+(\.[a-z0-9_]+)+", call.id) or not call.text]
    assert wrong == []


@pytest.mark.slow
def test_an_id_has_a_single_text() -> None:
    texts: dict[str, set[str]] = defaultdict(set)
    for call in calls():
        texts[call.id].add(call.text)
    assert {id: sorted(of_id) for id, of_id in texts.items() if len(of_id) > 1} == {}


def test_the_english_catalog_is_extracted_from_the_sources() -> None:
    assert read(CATALOGS / "en.json") == english(), "run `make messages`"


@pytest.mark.parametrize("language", translations.languages())
def test_every_message_is_translated_with_the_same_placeholders(language: str) -> None:
    words, texts = read(CATALOGS / f"{language}.json"), english()
    assert sorted(texts.keys() - words.keys()) == [], f"{language}.json lacks these ids"
    assert sorted(words.keys() - texts.keys()) == [], f"no source has these ids: remove them from {language}.json"
    assert {id: word for id, word in words.items() if placeholders(word) != placeholders(texts[id])} == {}
    assert list(words) == sorted(words), "sorted by id, so that two changes rarely conflict"


@pytest.mark.parametrize("language", translations.languages())
def test_translations_are_reviewed_after_their_english_text_changed(language: str) -> None:
    stale = translations.changed_since_review(language)
    assert stale == [], f"compare {language}.json with en.json, then: python -m tests.translations --reviewed ID..."


@pytest.mark.slow
def test_errors_of_the_server_are_messages() -> None:
    """A text of several words in an error that users see has an id."""
    bare: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith((*translations.SKIPPED, *OUTSIDE_THE_UI)):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ERRORS.fullmatch(ast.unparse(node.func)):
                texts = [translations.template(argument) for argument in node.args[:2]]
                bare += [
                    f"{place}:{node.lineno}: {text}" for text in texts if len(re.findall(r"[A-Za-z]{2,}", text)) > 1
                ]
    assert bare == []


def test_audit_rows_with_a_longer_subject_have_a_sentence() -> None:
    """The web UI shows an audit row as "action: subject"; `SENTENCES` in accounts/audit.py lists the longer ones."""
    sentences = {call.text for call in calls() if call.place.startswith("accounts/audit.py")}
    missing: list[str] = []
    for path in sorted((PACKAGE / "accounts").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "record_event" and len(node.args) == 4:
                action, subject = (translations.template(_text_of(argument)) for argument in node.args[2:])
                sentence = translations.numbered(re.sub(r"\{\d+\}", "{}", f"{action}: {subject}"))
                if action and len(re.findall(r"[A-Za-z]{2,}", subject)) == 1 and "{" in subject:
                    missing += [] if sentence in sentences else [sentence]
    assert missing == []


def _text_of(node: ast.AST) -> ast.AST:
    return node.args[1] if isinstance(node, ast.Call) and ast.unparse(node.func) == "msg" else node


def test_calls_are_extracted_with_numbered_placeholders() -> None:
    source = 'raise FormatError(msg("a.b", f"{name} has {len(rows)} rows; "), msg("a.c", "again"))\nmsg(id, text)'
    assert set(calls_in(source, "x.py")) == {
        Call("a.b", "{0} has {1} rows", "x.py:1"),
        Call("a.c", "again", "x.py:1"),
        Call("", "", "x.py:2"),
    }
