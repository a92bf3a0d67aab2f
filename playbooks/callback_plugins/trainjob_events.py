"""What happens, as one JSON object a line: `trainjob provision` reads it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: trainjob_events
type: stdout
short_description: One JSON object a line
description:
  - Plays, tasks, what each task did on each host, and the figures at the end.
"""

import json
import os
import sys
import time

from ansible.plugins.callback import CallbackBase

# Tasks of these phases check what was given; they belong to no host's role.
_VALIDATION = ("validate", "forget")
# What is included speaks for itself, and a fact that is set changes nothing.
_SILENT = ("include_", "set_fact")
# What a shell exits with when it may not run a program, or does not find it: here the interpreter of the modules.
_NOT_STARTED = (126, 127)


class CallbackModule(CallbackBase):
    """Prints events; everything else that Ansible says goes to the error stream."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "trainjob_events"

    def __init__(self):
        """Begin with no task."""
        super().__init__()
        self._began = {}

    def v2_playbook_on_play_start(self, play):
        """Say which play begins."""
        _say(event="play", name=play.get_name())

    def v2_playbook_on_task_start(self, task, is_conditional):  # noqa: ARG002 - the base class's signature
        """Say which task begins."""
        self._began[task._uuid] = time.monotonic()
        _say(event="task", **_about(task))

    def v2_playbook_on_no_hosts_matched(self):
        """Say that a play has no hosts."""
        _say(event="no-hosts")

    def v2_runner_on_ok(self, result):
        """Say what a task did on a host."""
        found = result._result
        self._host(result, "changed" if found.get("changed") else "ok")

    def v2_runner_on_skipped(self, result):
        """Say that a task was not for a host."""
        self._host(result, "skipped")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        """Say why a task failed on a host."""
        if not ignore_errors:
            self._host(result, "failed", why=_why(result._result))

    def v2_runner_on_unreachable(self, result):
        """Say why a host can't be reached."""
        self._host(result, "unreachable", why=_why(result._result))

    def v2_playbook_on_stats(self, stats):
        """Say how it ended."""
        _say(event="end", hosts={host: stats.summarize(host) for host in sorted(stats.processed)})

    def _host(self, result, status, **more):
        task = result._task
        if status == "ok" and task.action.rpartition(".")[2].startswith(_SILENT):
            return
        seconds = time.monotonic() - self._began.get(task._uuid, time.monotonic())
        found = result._result
        diff = _diff_text(found.get("diff")) if status == "changed" and result._task.diff else ""
        _say(
            event="host",
            host=result._host.get_name(),
            status=status,
            seconds=round(seconds, 2),
            **({"diff": diff} if diff else {}),
            **more,
            **_about(task),
        )


def _about(task):
    role = task._role.get_name() if task._role else ""
    if task.action.endswith("validate_argument_spec"):
        return {"task": "Check the types of what %s was given" % role, "role": "validate"}
    phase = os.path.splitext(os.path.basename((task.get_path() or "").rpartition(":")[0]))[0]
    role = "validate" if phase in _VALIDATION else "" if phase == "verdict" else role
    return {"task": task.name or task.action, "role": role}


def _why(found):
    for result in found.get("results", ()):
        if result.get("failed") or result.get("unreachable"):
            return _why(result)
    text = str(found.get("msg") or found.get("module_stderr") or found.get("stderr") or "it did not say why").strip()
    if found.get("module_stderr") and found.get("rc") in _NOT_STARTED:
        said = found["module_stderr"].strip().splitlines()[-1]
        return "%s (%s). Name a Python that runs there, 3.8 or newer: provision: {interpreter: …}" % (text, said)
    return text


def _diff_text(diffs):
    listed = diffs if isinstance(diffs, list) else [diffs]
    texts = []
    for diff in listed:
        if not isinstance(diff, dict) or ("before" not in diff and "prepared" not in diff):
            continue
        texts.append(diff.get("prepared") or _sides(diff))
    return "".join(texts)


def _sides(diff):
    before, after = (_text(diff.get(side)).splitlines() for side in ("before", "after"))
    return "".join(
        ["- %s\n" % line for line in before if line not in after]
        + ["+ %s\n" % line for line in after if line not in before]
    )


def _text(value):
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, sort_keys=True)


def _say(**event):
    sys.stdout.write(json.dumps(event, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()
