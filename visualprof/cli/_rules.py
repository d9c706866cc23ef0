"""Show and set the retention rules from the shell of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visualprof.errors import BadParameter, NotFound
from visualprof.remote.queue.store.records import RetentionKind, RetentionRule

if TYPE_CHECKING:
    from visualprof.remote.queue.job_services import JobServices
    from visualprof.remote.queue.tasks.retention import RecordEvent

_KIND_NAMES: dict[RetentionKind, str] = {
    "jobs": "jobs, with their results, after their end",
    "uploads": "uploads that no job names",
    "notices": "notices to people",
    "audit": "rows of the audit log",
}


def rules(
    queue: JobServices, kind: RetentionKind | None, days: int | str | None, project: str, yes: bool, noted: RecordEvent
) -> int:
    """Show the rules or what a rule would remove, and set the rule if `yes`.

    Args:
        noted: Records the change in the audit log.
    """
    names = _projects(queue)
    chosen = _project(names, project) if project else ""
    if (kind is None) != (days is None):
        raise BadParameter("a rule has a kind and days", "for example: visualprof admin retention jobs 90")
    if days == "others" and not chosen:
        raise BadParameter("others: only the jobs of a project follow the rule of all others", "name it: --project P")
    if days == "others":
        queue.retention.drop(chosen, noted)
    elif kind:
        rule = RetentionRule(kind, chosen, days if isinstance(days, int) else None)
        removed = queue.retention.preview(rule)
        sized = "" if removed.size_bytes is None else f", {removed.size_bytes / 1e6:,.1f} MB"
        least = " at least" if removed.measured < removed.count and sized else ""
        print(f"{'removes within an hour' if yes else 'would remove now'}: {removed.count:,} {kind}{sized}{least}")
        if not yes:
            print("say --yes to set the rule")
            return 0
        queue.retention.change(rule, noted)
    for rule in queue.retention.rules():
        title = (
            f"{_KIND_NAMES[rule.kind]}{f' (project {names.get(rule.project, rule.project)})' if rule.project else ''}"
        )
        print(f"{rule.kind:8} {'never' if rule.days is None else f'{rule.days} days':>10}  {title}")
    return 0


def _projects(queue: JobServices) -> dict[str, str]:
    from visualprof.accounts.projects import Projects

    return {project.id: project.name for project in Projects(queue.database).list_visible(None)}


def _project(names: dict[str, str], wanted: str) -> str:
    matches = [identity for identity, name in names.items() if wanted in (identity, name)]
    if not matches:
        raise NotFound(f"there is no project {wanted!r}", ", ".join(names.values()))
    return matches[0]
