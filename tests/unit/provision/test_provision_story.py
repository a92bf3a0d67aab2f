import json

from trainjob.provision.events import HostDone, TaskBegun, parse
from trainjob.provision.outcome import Outcome
from trainjob.provision.story import Story


def done(host="a", role="sdk_venv", task="Build", status="ok", seconds=1.0, **more):
    return HostDone(host, role, task, status, seconds, **more)


def test_events_are_read_and_anything_else_is_passed_over():
    line = {"event": "host", "host": "a", "role": "r", "task": "t", "status": "failed", "seconds": 2, "why": "w"}
    assert parse(json.dumps(line)) == HostDone("a", "r", "t", "failed", 2.0, "w")
    assert parse('{"event": "task", "role": "r", "task": "t"}') == TaskBegun("r", "t")
    assert parse('{"event": "end", "hosts": {}}') is None
    assert parse("[WARNING]: something") is None


def test_a_task_is_one_line_when_the_next_begins():
    story = Story()
    assert story.heard(TaskBegun("sdk_venv", "Build")) == []
    assert story.heard(done("b", status="changed", seconds=3.0)) == []
    assert story.heard(done("a")) == []
    assert story.heard(TaskBegun("sdk_venv", "Next")) == ["  sdk_venv   Build · a ok, b changed · 3.0 s"]
    assert story.rest() == []


def test_many_hosts_are_counted():
    story = Story()
    for number in range(60):
        story.heard(done(f"h{number}", status="changed" if number < 20 else "ok"))
    assert story.rest() == ["  sdk_venv   Build · 40 ok, 20 changed · 1.0 s"]


def test_what_was_skipped_or_only_validated_takes_no_line():
    story = Story()
    story.heard(done(status="skipped"))
    assert story.rest() == []
    story.heard(done(role="validate"))
    assert story.rest() == []


def test_a_failure_says_at_once_on_which_host_and_why():
    story = Story()
    said = story.heard(done("b", role="validate", status="failed", why="one\ntwo"))
    assert said == ["    b: one", "    b: two"]
    assert story.rest() == ["  validate   Build · b failed · 1.0 s"]


def test_a_difference_is_shown_under_its_host():
    assert Story().heard(done(status="changed", diff="- a\n+ b\n")) == ["    a would become:", "      - a", "      + b"]


def outcome(*events, verdict=None, code=0, expected=True):
    made = Outcome(("a", "b"), code=code, verdict=verdict, verdict_expected=expected)
    for event in events:
        made.add(event)
    return made


def test_a_host_shows_the_worst_that_a_role_met():
    made = outcome(done(status="changed"), done(), done(role="proof"), done("b", role="sdk_venv", status="skipped"))
    assert made.roles == ("sdk_venv", "proof")
    assert [made.status("a", role) for role in made.roles] == ["changed", "ok"]
    assert made.status("b", "sdk_venv") == "–"
    assert made.changed == 1


def test_the_verdict_alone_is_success_where_one_was_asked_for():
    good = {"ok": True, "hosts": {}}
    assert outcome(verdict=good).ok
    assert not outcome(verdict=None).ok
    assert not outcome(verdict={"ok": False, "hosts": {}}).ok
    assert not outcome(verdict=good, code=4).ok
    assert not outcome(done(status="unreachable"), verdict=good).ok
    assert outcome(expected=False).ok


def test_json_names_the_host_the_role_and_the_reason():
    made = outcome(done("b", status="failed", why="no room", task="Unpack"))
    assert made.as_json()["failures"] == [
        {"host": "b", "role": "sdk_venv", "task": "Unpack", "status": "failed", "why": "no room"}
    ]
    assert made.reasons == {"sdk_venv: no room": ["b"]}


def test_a_reason_that_holds_for_several_hosts_is_told_once_and_the_first_of_a_host_counts():
    full, later = done("b", status="failed", why="no room"), done("b", status="unreachable", why="gone")
    made = outcome(full, later, done("a", status="failed", why="no room"))
    assert made.reasons == {"sdk_venv: no room": ["a", "b"]}
