from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.waiting import until
from trainjob.cli.site import provision
from trainjob.provision.drive import ProvisionOutcome
from trainjob.provision.events import HostDone, Story, TaskBegun, parse
from trainjob.watch import show


def done(
    host: str = "a", role: str = "sdk_venv", task: str = "Build", status: str = "ok", seconds: float = 1.0, **more: Any
) -> Any:
    return HostDone(host, role, task, status, seconds, **more)


def line(event: str, result: dict[str, Any] | None = None, **task: Any) -> str:
    """Return what ansible.posix.jsonl prints."""
    times = {"start": "2026-01-02T03:04:05.000000Z", "end": "2026-01-02T03:04:07.500000Z"}
    about = {"name": "r : t", "path": "/p/roles/r/tasks/main.yml:3", "duration": times, **task}
    hosts = {} if result is None else {"hosts": {"a": result}}
    return json.dumps({"_event": event, "task": about, **hosts})


def test_events_are_read_and_anything_else_is_passed_over() -> None:
    assert parse(line("v2_playbook_on_task_start")) == TaskBegun("r", "t")
    assert parse(line("v2_runner_on_failed", {"msg": "w"})) == HostDone("a", "r", "t", "failed", 2.5, "w")
    assert parse(line("v2_runner_on_ok", {"changed": True})) == HostDone("a", "r", "t", "changed", 2.5)
    assert parse(line("v2_runner_on_ok", {"action": "ansible.builtin.include_tasks"})) is None
    assert parse('{"_event": "v2_playbook_on_stats", "stats": {}}') is None
    assert parse("[WARNING]: something") is None
    assert parse("7") is None


def test_a_loop_that_failed_says_why_of_the_round_that_did() -> None:
    result = {"msg": "One or more items failed", "results": [{"msg": "fine"}, {"failed": True, "msg": "this one"}]}
    assert parse(line("v2_runner_on_failed", result)) == HostDone("a", "r", "t", "failed", 2.5, "this one")


def test_an_interpreter_that_did_not_start_is_named_with_the_key_for_another() -> None:
    output = parse(
        line("v2_runner_on_failed", {"msg": "m", "rc": 127, "module_stderr": "x\nsh: 1: python9: not found"})
    )
    assert isinstance(output, HostDone)
    assert output.why.startswith(
        "m (sh: 1: python9: not found). Name a Python that runs there, 3.8 or newer: provision:"
    )


@pytest.mark.parametrize(
    ("name", "path", "role"),
    [
        ("pod_hosts : Make a key pair", "/p/roles/pod_hosts/tasks/ssh.yml:10", "pod_hosts"),
        ("sdk_venv : Check the paths", "/p/roles/sdk_venv/tasks/validate.yml:2", "validate"),
        ("proof : Remove the verdict", "/p/roles/proof/tasks/forget.yml:2", "validate"),
        ("proof : Write the verdict", "/p/roles/proof/tasks/verdict.yml:2", ""),
        ("Check what sdk_venv was given", "/p/validate.yml:12", "validate"),
        ("Remove older builds", "/p/sdk.yml:33", ""),
    ],
)
def test_a_task_counts_for_its_role_and_a_check_of_input_for_none(name: str, path: str, role: str) -> None:
    assert parse(line("v2_playbook_on_task_start", name=name, path=path)) == TaskBegun(role, name.split(" : ")[-1])


def test_differences_are_read_where_they_are_asked_for() -> None:
    result = {"changed": True, "diff": [{"before": "a\nb\n", "after": "b\nc\n"}, {"prepared": "+ d\n"}]}
    assert parse(line("v2_runner_on_ok", result), diffs=True) == HostDone(
        "a", "r", "t", "changed", 2.5, diff="- a\n+ c\n+ d\n"
    )
    assert parse(line("v2_runner_on_ok", result)) == HostDone("a", "r", "t", "changed", 2.5)


def test_a_task_is_one_line_when_the_next_begins() -> None:
    story = Story()
    assert story.heard(TaskBegun("sdk_venv", "Build")) == []
    assert story.heard(done("b", status="changed", seconds=3.0)) == []
    assert story.heard(done("a")) == []
    assert story.heard(TaskBegun("sdk_venv", "Next")) == ["  sdk_venv   Build · a ok, b changed · 3.0 s"]
    assert story.rest() == []


def test_a_long_task_is_shown_again_and_again_off_a_terminal_too(capsys: pytest.CaptureFixture[str]) -> None:
    teller = provision.Teller(to_errors=False, lines_every_s=0.01)
    teller.hear(TaskBegun("sdk_venv", "Install torch"))
    teller.hear(done("a", role="sdk_venv"))
    with show.every(teller.period_s, teller.tell):
        shown = until(lambda: capsys.readouterr().out, "a line that shows what is running")
    assert re.match(r"  … sdk_venv: Install torch · 1 host done, \d+ s\n", shown)


def test_many_hosts_are_counted() -> None:
    story = Story()
    for number in range(60):
        story.heard(done(f"h{number}", status="changed" if number < 20 else "ok"))
    assert story.rest() == ["  sdk_venv   Build · 40 ok, 20 changed · 1.0 s"]


def test_what_was_skipped_or_only_validated_takes_no_line() -> None:
    story = Story()
    story.heard(done(status="skipped"))
    assert story.rest() == []
    story.heard(done(role="validate"))
    assert story.rest() == []


def test_a_failure_says_at_once_on_which_host_and_why() -> None:
    story = Story()
    output = story.heard(done("b", role="validate", status="failed", why="one\ntwo"))
    assert output == ["    b: one", "    b: two"]
    assert story.rest() == ["  validate   Build · b failed · 1.0 s"]


def test_a_difference_is_shown_under_its_host() -> None:
    assert Story().heard(done(status="changed", diff="- a\n+ b\n")) == ["    a would become:", "      - a", "      + b"]


def outcome(*events: Any, verdict: Any = None, code: int = 0, expected: bool = True) -> Any:
    made = ProvisionOutcome(("a", "b"), code=code, verdict=verdict, verdict_expected=expected)
    for event in events:
        made.add(event)
    return made


def test_a_host_shows_the_worst_that_a_role_met() -> None:
    made = outcome(done(status="changed"), done(), done(role="proof"), done("b", role="sdk_venv", status="skipped"))
    assert made.roles == ("sdk_venv", "proof")
    assert [made.status("a", role) for role in made.roles] == ["changed", "ok"]
    assert made.status("b", "sdk_venv") == "–"
    assert made.changed == 1


def test_the_verdict_alone_is_success_where_one_was_asked_for() -> None:
    good = {"ok": True, "hosts": {}}
    assert outcome(verdict=good).ok
    assert not outcome(verdict=None).ok
    assert not outcome(verdict={"ok": False, "hosts": {}}).ok
    assert not outcome(verdict=good, code=4).ok
    assert not outcome(done(status="unreachable"), verdict=good).ok
    assert outcome(expected=False).ok


def test_json_names_the_host_the_role_and_the_reason() -> None:
    made = outcome(done("b", status="failed", why="no room", task="Unpack"))
    assert made.as_json()["failures"] == [
        {"host": "b", "role": "sdk_venv", "task": "Unpack", "status": "failed", "why": "no room"}
    ]
    assert made.reasons == {"sdk_venv: no room": ["b"]}


def test_a_reason_that_holds_for_several_hosts_is_reported_once_and_the_first_of_a_host_counts() -> None:
    full, later = done("b", status="failed", why="no room"), done("b", status="unreachable", why="gone")
    made = outcome(full, later, done("a", status="failed", why="no room"))
    assert made.reasons == {"sdk_venv: no room": ["a", "b"]}
