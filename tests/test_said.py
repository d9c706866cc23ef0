"""The page has every sentence of the server's in its languages (docs/adr/0040-the-sentence-is-the-key.md).

The sentences are found in the sources, as texts with `{}` for what is put in. Every text of several words counts,
unless it stands where nothing is said to a page (`ELSEWHERE`, `UNSAID`).
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "visualprof"
TABLES = PACKAGE / "frontend" / "src" / "locales" / "said"
#: Said to agents, to a terminal or to nobody.
ELSEWHERE = re.compile(
    r"(reader/native|remote/agent/(link|machine)|remote/queue/store/migrations)/|remote/agent/[a-z_]+\.py|remote/agent/work/followed\.py"
    r"|remote/fleets/(kinds/\w+|__init__|daemon)\.py"
    r"|remote/operators/(comparison|script)\.py"
    r"|remote/cases/(folder\.py|library/)|remote/child/case/logger\.py"
    r"|accounts/notices/(messages|mail)\.py|server/(serve|remote_service|api/openapi|api/agent_link)\.py"
    r"|views/measure/(collectives|counter_tracks|intervals|operator_call|work/\w+)\.py|reader/trace/codec\.py"
)
#: Calls and names whose texts are no sentences for a page: logs, descriptions of the API, SQL, names of counters.
UNSAID = re.compile(
    r"_log(\.\w+)?|logging\b.*|argparse\.ArgumentParser|parser\.add_argument|re\.\w+|pattern|msgspec\.field|Meta|AttributeError|TypeError|Format|ModelFormat|change|get|extra\.get"
    r"|[\w.]+\.(execute|exec_driver_sql|startswith|removeprefix|describe|track|filterwarnings)|describe|For|If|field|cast|warn|Rule"
    r"|.*\.(encode|sub)"
    r"|=(KINETO|HOST|ON_GPU|REASON_BITS|SPAN|NO_JOB|NO_REPORT|CHANGED|INSTALL|PRESSURE_COUNTER|POLICY|LIMITS|CONVERTED|PRECISIONS|_MISSING|_PAGE|NO_SPACE|_FITS|CAST|PAGEABLE)"
    r"|=(_DERIVED|_NUMBERS|\(_OPERATIONS, _STEPS\)|\(_PROCESS_RANGES, _GRAPH\)|\(_UNKNOWN_CALL, _UNKNOWN_KERNEL\))"
    r"|line\.get|=(_TIME|_RATIOS|_COUNTS|_SHARED|_LAUNCH|_EXTENTS|_ANONYMOUS|\(_NAME, _SECTION.*)"
    r"|=(_Placed|command|token|lines|connects|settings|builder\.producer|response\.headers\[.*|properties\[.*|.*\.properties\[.*)"
)


# Said to PostgreSQL, a shell, or in the API's own words.
SQL = re.compile(
    r"(SELECT|WHERE|CAST|BEGIN|SET|LISTEN|CREATE DATABASE|REPEATABLE READ|POST|visualprof agent) ?|\(extract\("
)


def sentences() -> dict[str, str]:
    """Each with the place where it stands."""
    found: dict[str, str] = {}
    rooms = [
        "errors.py",
        "accounts/**/*.py",
        "reader/**/*.py",
        "views/**/*.py",
        "server/**/*.py",
        "remote/**/*.py",
        "capture/live.py",
        "capture/requests.py",
    ]
    for path in sorted(file for room in rooms for file in PACKAGE.glob(room)):
        place = path.relative_to(PACKAGE).as_posix()
        if not ELSEWHERE.match(place) or place == "remote/agent/faults.py":
            found |= {text: f"{place}:{line}" for text, line in _texts(ast.parse(path.read_text("utf-8")))}
    return found


def _texts(tree: ast.AST) -> Iterator[tuple[str, int]]:
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    yield from _deeds(tree)
    for node in ast.walk(tree):
        text = _text(node)
        whole = not isinstance(parents.get(node), (ast.JoinedStr, ast.FormattedValue, ast.Expr))
        words = re.findall(r"[A-Za-z]{2,}", text) if whole and " " in text else []
        if SQL.match(text):
            continue
        if (len(words) > 1 or (words and re.search(r"[:(] ?{}", text))) and not UNSAID.fullmatch(_place(node, parents)):
            yield text.strip(" ;:\n"), getattr(node, "lineno", 0)


def _deeds(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Rows of the log of what was done, with what stands in them; that alone is no sentence."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("note") and len(node.args) > 1:
            action, subject = map(_text, node.args[-2:])
            if action and len(re.findall(r"[A-Za-z]{2,}", subject)) == 1 and "{}" in subject:
                yield f"{action}: {subject}", node.lineno


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _place(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str:
    """The call that takes a text, `=` with the name that it gets, or the kind of statement."""
    while not isinstance(node := parents[node], ast.stmt):
        if isinstance(node, ast.Call):
            return ast.unparse(node.func)
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        return "=" + ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
    return type(node).__name__


def test_what_was_done_stands_with_to_whom() -> None:
    program = 'note(connection, actor, "invite person", f"{email} as {role}")\nnote(connection, actor, "log out", who)'
    assert {text for text, _ in _texts(ast.parse(program))} == {"invite person", "invite person: {} as {}", "log out"}


def slots(text: str) -> list[int]:
    """The places of what is put in; a bare `{}` takes the next one."""
    bare = itertools.count()
    return sorted(int(place) if place else next(bare) for place in re.findall(r"\{(\d*)\}", text))


@pytest.mark.parametrize("table", sorted(TABLES.iterdir()), ids=lambda path: path.stem)
def test_every_sentence_of_the_server_is_there_in_the_languages_of_the_page(table: Path) -> None:
    words = json.loads(table.read_text("utf-8"))
    said = sentences()
    assert {text: place for text, place in said.items() if text not in words} == {}, f"{table.name} lacks these"
    assert sorted(words.keys() - said.keys()) == [], f"nobody says these any more: take them out of {table.name}"
    assert {text: there for text, there in words.items() if slots(text) != slots(there)} == {}
    assert list(words) == sorted(words), "in the order of the alphabet, so that two changes seldom meet"


def test_sentences_are_found_wherever_they_stand() -> None:
    program = '''
def f(name, log):
    """A docstring says nothing."""
    hint = "try it again" if name else f"{name}: no such file"
    _log.warning("of no page")
    raise FormatError(f"{name} is {len(name)} long ({hint})", HINTS.get(name, "look there") + "; or here, too")
'''
    found = {text for text, _ in _texts(ast.parse(program))}
    assert found == {
        "try it again",
        "{}: no such file",
        "{} is {} long ({})",
        "look there",
        "or here, too",
    }
