"""Changed jobs and runs that pages get: only visible ones, and all again after visibility changed."""

from __future__ import annotations

from typing import Any

import pytest
from sites import kineto
from teams import SHELL, Browser, Team

from visualprof.accounts import passwords
from visualprof.accounts.principal import Actor, Principal
from visualprof.accounts.sharing import Sharing


class Page:
    """The job list of a user, updated like the page does."""

    def __init__(self, browser: Browser) -> None:
        self._browser, self._revision = browser, None

    def poll(self) -> tuple[bool, list[str]]:
        """Was it everything? And the ids."""
        query = {} if self._revision is None else {"since": self._revision}
        answer = self._browser.ask("GET", "jobs", query_string=query).get_json()
        whole, self._revision = answer["since"] is None, answer["revision"]
        return whole, [job["id"] for job in answer["jobs"]]


def submitted(team: Team, browser: Browser, name: str) -> str:
    draft = browser.ask("POST", "jobs/draft", json={"model": team.blob}).get_json()["request"]
    wanted = {**draft, "key": name, "specs": [{"id": "cpu", "backend": "onnxruntime"}]}
    answer = browser.ask("POST", "jobs", json=wanted)
    assert answer.status_code == 201, answer.get_json()
    return answer.get_json()["job"]["id"]


def runs_of(browser: Browser, since: int | None = None) -> Any:
    return browser.ask("GET", "runs/changes", query_string={} if since is None else {"since": since}).get_json()


@pytest.mark.both_databases
def test_a_page_gets_only_changed_jobs_that_its_user_may_see(team: Team) -> None:
    ann, bob = team.browser("ann"), team.browser("bob")
    page, his = Page(ann), Page(bob)
    assert (page.poll(), his.poll()) == ((True, [team.job]), (True, []))
    more = submitted(team, ann, "more")
    assert (page.poll(), his.poll()) == ((False, [more]), (False, []))
    ann.ask("POST", f"jobs/{team.job}/cancel")
    assert (page.poll(), his.poll()) == ((False, [team.job]), (False, []))
    assert (page.poll(), his.poll()) == ((False, []), (False, []))
    for visibility, seen in (("public", [team.job]), ("private", [])):
        answer = ann.ask("PUT", "runs/access", json={"run": team.run, "visibility": visibility})
        assert answer.status_code == 200, answer.get_json()
        assert page.poll() == (True, [more, team.job])
        assert his.poll() == (True, seen)
    assert ann.ask("DELETE", f"jobs/{team.job}").status_code == 200
    assert (page.poll(), his.poll()) == ((True, [more]), (True, []))


def test_a_submission_does_not_resend_all_runs(team: Team) -> None:
    ann, bob = team.browser("ann"), team.browser("bob")
    before = runs_of(bob)
    submitted(team, ann, "more")
    assert runs_of(bob, before["revision"])["since"] == before["revision"]
    ann.ask("PUT", "runs/access", json={"run": team.run, "visibility": "public"})
    after = runs_of(bob, before["revision"])
    assert after["since"] is None
    assert team.run in [run["id"] for run in after["runs"]]


def test_the_first_look_at_a_new_jobs_run_does_not_show_it(team: Team) -> None:
    ann, bob = team.browser("ann"), team.browser("bob")
    before = runs_of(bob)  # what is kept of who may see what is older than the job
    job = submitted(team, ann, "more")
    run = f"{team.remote.open().jobs.get(job).folder}/cpu"
    team.site.write(f"{run}/trace.json", kineto())
    assert run in [shown["id"] for shown in runs_of(ann)["runs"]]
    for answer in (runs_of(bob), runs_of(bob, before["revision"])):
        assert run not in [shown["id"] for shown in answer["runs"]] + answer["removed"]


def test_a_server_sees_what_another_server_shared(team: Team) -> None:
    first, second = (Sharing(team.accounts.database) for _ in range(2))
    assert not first.visibility_filter(team.ids["bob"])(team.run)
    actor = Actor(Principal(team.ids["ann"], "ann@example.org", role="member"), "")
    second.share(actor, team.run, "public", None)
    assert first.visibility_filter(team.ids["bob"])(team.run)
    project = team.accounts.projects.create(actor, "vision")
    second.share(actor, team.run, "project", project)
    assert not first.visibility_filter(team.ids["bob"])(team.run)
    team.accounts.projects.add_member(SHELL, project, "bob@example.org")
    assert first.visibility_filter(team.ids["bob"])(team.run)
    team.accounts.projects.delete(SHELL, project)
    assert not first.visibility_filter(team.ids["bob"])(team.run)


def test_a_storm_of_log_ins_is_refused_before_the_database_is_asked(team: Team) -> None:
    hashes = team.accounts.users._passwords
    places = [hashes._place() for _ in range(passwords.MAX_CONCURRENT + passwords.MAX_WAITING)]
    [place.__enter__() for place in places]
    for _ in range(6):  # none of them counts as an attempt
        with pytest.raises(passwords.ServerBusy):
            team.accounts.users.log_in("ann@example.org", "wrong", "1.2.3.4")
    [place.__exit__(None, None, None) for place in places]
    assert team.accounts.users.log_in("ann@example.org", "four words are enough", "1.2.3.4")
