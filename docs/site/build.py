"""Build the documentation site: `python -m docs.site.build`, or `make docs`.

The pages of `docs/` are plain Markdown. This program copies them, adds the generated reference pages, and runs Sphinx
once per language, with warnings as errors. `docs/README.md` is the table of contents: each of its headings is a part of
the navigation, and each link below the heading is a page.

A Chinese page has the path of its English page below `docs/zh`. A page without a translation appears in English.
`docs/zh/sources.json` has the hash of the English text that each translation belongs to. After you have updated
translations, `python -m docs.site.build --translated` writes it; until then a test names them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs.site.languages import LANGUAGES, UNTRANSLATED, Language
from docs.site.reference import generated_pages

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OUTPUT = ROOT / "build" / "docs"
SOURCES = DOCS / "zh" / "sources.json"
COPIED = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # pages of the repository that are also pages of the site
GENERATED = "<!-- generated pages -->"  # place of their links in the table of contents
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def main(argv: list[str] | None = None) -> int:
    """Build both languages, and return the exit status of the first failed build."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT, help="Output directory (default: build/docs).")
    parser.add_argument("--translated", action="store_true", help="Record that all translations are up to date.")
    args = parser.parse_args(argv)
    if args.translated:
        SOURCES.write_text(json.dumps(source_hashes(), indent=1) + "\n", "utf-8")
        return 0
    for language in LANGUAGES:
        source = args.output / "source" / language
        write_sources(source, language)
        status = _run_sphinx(source, args.output / "html" / language, language)
        if status:
            return status
    (args.output / "html" / "index.html").write_text(_REDIRECT, "utf-8")
    print(f"Documentation: {args.output / 'html' / 'index.html'}")
    return 0


_REDIRECT = """<!doctype html><meta charset="utf-8"><title>visualprof</title>
<script>location.replace((navigator.language.startsWith("zh") ? "zh" : "en") + "/index.html")</script>
<a href="en/index.html">English</a> <a href="zh/index.html">中文</a>
"""


def write_sources(target: Path, language: Language) -> None:
    """Write the sources of one language into the folder `target`."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("conf.py"), target)
    shutil.copytree(DOCS / "images", target / "images")
    for name in english_pages():
        translation = DOCS / "zh" / name
        page = translation if language == "zh" and translation.exists() else DOCS / name
        text = page.read_text("utf-8")
        if language == "zh" and page != translation:
            text = _add_note(text, UNTRANSLATED)
        if language == "zh":
            text = _translate_anchors(text, name)
        _write(target / name, _localize_links(text, page, target / name))
    for name in COPIED:
        text = _localize_links((ROOT / name).read_text("utf-8"), ROOT / name, target / name)
        _write(target / name, _translate_anchors(text, name) if language == "zh" else text)
    generated = generated_pages(language)
    for name, text in generated.items():
        _write(target / name, text)
    decisions = target / "adr" / "README.md"
    _write(decisions, decisions.read_text("utf-8") + _toctree(sorted(p.name for p in decisions.parent.glob("0*.md"))))
    contents = target / "README.md"
    listed = "\n".join(f"- [{text.splitlines()[0].removeprefix('# ')}]({name})" for name, text in generated.items())
    text = contents.read_text("utf-8").replace(GENERATED, listed)
    _write(target / "index.md", add_navigation(text))
    contents.unlink()


def english_pages() -> list[str]:
    """Return the paths of the English pages, relative to `docs`."""
    paths = (path.relative_to(DOCS) for path in DOCS.rglob("*.md"))
    return sorted(path.as_posix() for path in paths if path.parts[0] not in ("zh", "site"))


def headings(page: Path) -> list[str]:
    """Return the headings of a page in order."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)


def _translate_anchors(text: str, name: str) -> str:
    """Return the text of the page `name` with anchors of the translated headings. Links name the English headings."""

    def replace(match: re.Match[str]) -> str:
        path, anchor = match.groups()
        page = os.path.normpath(Path(name).parent / path) if path else name
        translation = DOCS / "zh" / page
        if page.startswith("..") or not translation.exists():
            return match[0]
        anchors = dict(
            zip(map(heading_anchor, headings(DOCS / page)), map(heading_anchor, headings(translation)), strict=True)
        )
        return f"]({path}#{anchors.get(anchor, anchor)})"

    return re.sub(r"\]\(([\w./-]*)#([^)\s]+)\)", replace, text)


def heading_anchor(heading: str) -> str:
    """Return the anchor of a heading, as MyST and repository browsers make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def source_hashes() -> dict[str, str]:
    """Return the hash of the English text of each translated page."""
    pages = sorted(path.relative_to(DOCS / "zh").as_posix() for path in (DOCS / "zh").rglob("*.md"))
    return {page: hashlib.sha256((DOCS / page).read_bytes()).hexdigest()[:12] for page in pages}


def add_navigation(contents: str) -> str:
    """Return the table of contents with a hidden `toctree` for each heading that has links to pages."""
    parts = re.split(r"^(## .+)$", contents, flags=re.MULTILINE)
    text = parts[0]
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        pages = [link for _, _, link in _LINK.findall(body) if link.endswith(".md")]
        text += heading + body
        text += _toctree(pages, heading.removeprefix("## "))
    return text


def _toctree(pages: list[str], caption: str = "") -> str:
    """Return a hidden list of pages, which puts them into the navigation."""
    listed = "\n".join(dict.fromkeys(page.removesuffix(".md") for page in pages))
    title = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n:hidden:\n{title}\n{listed}\n```\n\n" if pages else ""


def _localize_links(text: str, page: Path, target: Path) -> str:
    """Return `text` with links that work on the site.

    Links to other pages stay. A link to another file of the repository becomes its path: the site has no copy.
    """

    def replace(match: re.Match[str]) -> str:
        image, label, link = match.groups()
        address, _, anchor = link.partition("#")
        if not address or re.match(r"[a-z]+:", address):
            return match[0]
        file = (page.parent / address).resolve()
        translated = file.is_relative_to(DOCS / "zh")
        inside = file.relative_to(DOCS / "zh" if translated else DOCS) if file.is_relative_to(DOCS) else None
        site = target.parents[len(page.relative_to(_base(page)).parts) - 1]
        if inside is None and file.parent == ROOT and file.name in COPIED:
            inside = Path(file.name)
        if inside is None or (file.suffix not in (".md", ".png", ".webp", ".svg")):
            return f"{label} (`{file.relative_to(ROOT)}`)" if file.is_relative_to(ROOT) else match[0]
        if inside.name == "README.md" and inside.parent == Path():
            inside = Path("index.md")
        path = os.path.relpath(site / inside, target.parent)
        return f"{image}[{label}]({path}{'#' + anchor if anchor else ''})"

    return _LINK.sub(replace, text)


def _base(page: Path) -> Path:
    """Return the folder that becomes the root of the site for `page`."""
    if page.is_relative_to(DOCS / "zh"):
        return DOCS / "zh"
    return DOCS if page.is_relative_to(DOCS) else ROOT


def _add_note(text: str, note: str) -> str:
    """Return the page `text` with a note below its title."""
    title, _, rest = text.partition("\n")
    return f"{title}\n\n> {note}\n{rest}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _run_sphinx(source: Path, target: Path, language: Language) -> int:
    """Run Sphinx with warnings as errors, and return its exit status."""
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-j", "auto"]
    environment = {**os.environ, "DOCS_LANGUAGE": language}
    return subprocess.run([*command, source, target], env=environment, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
