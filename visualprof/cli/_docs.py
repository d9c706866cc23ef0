"""Addresses of pages of the documentation."""

from __future__ import annotations

import os
from importlib import metadata


def docs_address(page: str) -> str:
    """Return the address of a page, or its path in the repository if the address of the repository is unknown.

    Args:
        page: Path below `docs`, without `.md`.
    """
    repository = os.environ.get("VISUALPROF_REPOSITORY", "").rstrip("/")
    contents = f"{repository}/blob/main/docs/README.md" if repository else _project_url("Documentation")
    return f"{contents.removesuffix('README.md')}{page}.md" if contents else f"docs/{page}.md"


def _project_url(name: str) -> str:
    """Return an address from the metadata of the installed package, or "" if it is missing."""
    try:
        urls = metadata.metadata("visualprof").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return ""
    return dict(url.split(", ", 1) for url in urls).get(name, "")
