"""Addresses of pages of the documentation."""

from __future__ import annotations

import os
from importlib import metadata


def docs_address(page: str) -> str:
    """Return the address of a page, or its path in the repository if the address of the repository is unknown.

    Args:
        page: Path below `docs`, without `.md`, and a heading: `formats#ranks`.
    """
    repository = os.environ.get("VISUALPROF_REPOSITORY", "").rstrip("/")
    contents = f"{repository}/blob/main/docs/README.md" if repository else _project_url("Documentation")
    name, mark, heading = page.partition("#")
    return f"{contents.removesuffix('README.md') if contents else 'docs/'}{name}.md{mark}{heading}"


def _project_url(name: str) -> str:
    """Return an address from the metadata of the installed package, or "" if it is missing."""
    try:
        urls = metadata.metadata("visualprof").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return ""
    return dict(url.split(", ", 1) for url in urls).get(name, "")
