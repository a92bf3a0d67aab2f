"""Delivers a message about a run: to a command or a webhook. No error names a secret."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from urllib.parse import urlsplit

from trainjob.cluster.preferences import Event, Notify
from trainjob.contract.errors import UserError
from trainjob.contract.quoting import visible
from trainjob.machines import process
from trainjob.observe.status import Snapshot

_LIMIT_S = 15.0
_WORDS: dict[Event, str] = {"stalled": "makes no progress", "limit": "approaches its time limit"}


@dataclass(frozen=True)
class Message:
    """A message about a run: its subject in one line, and a body."""

    run: str
    event: Event
    state: str
    cluster: str
    attempt: int
    update: int | None
    total_updates: int | None
    subject: str
    body: str


def message(now: Snapshot, event: Event) -> Message:
    """Return the message about a run. Others may write the files with its texts, so control characters are escaped."""
    where = now.cluster or "a job script started by hand"
    reason = str(now.cause) if now.cause is not None else now.note
    left = f"time left: {now.scheduler.get('time_left')}" if event == "limit" else None
    lines = (reason, left, now.progress, f"attempt {now.attempt}", f"trainjob status {now.id}")
    return Message(
        visible(now.id),
        event,
        visible(now.state),
        visible(where),
        now.attempt,
        now.update,
        now.total_updates,
        subject=visible(f"{now.id} on {where} {_WORDS.get(event, f'is {now.state}')}"),
        body="\n".join(visible(line) for line in lines if line),
    )


def ways(rules: Notify) -> dict[str, Callable[[Message], None]]:
    """Return the configured channels by name. Calling one delivers a message or raises UserError."""
    channels: dict[str, Callable[[Message], None]] = {}
    if rules.command:
        channels["command"] = partial(_by_command, rules.command)
    if rules.webhook is not None:
        channels["webhook"] = partial(_by_webhook, rules.webhook)
    return channels


def _by_command(words: list[str], message: Message) -> None:
    """Run the command with the message in its environment and input. As an argument, a shell might execute it."""
    fields = {f"TRAINJOB_NOTIFY_{name.upper()}": str(value or "") for name, value in asdict(message).items()}
    program = os.path.expanduser(words[0])
    text = f"{message.subject}\n\n{message.body}\n".encode()
    try:
        ended = process.run(
            [program, *words[1:]], timeout_s=_LIMIT_S, environment={**os.environ, **fields}, stdin=text, check=False
        )
    except process.TimedOutError:
        raise UserError(f"{program} did not end within {_LIMIT_S:g} s", "let it work in the background") from None
    if ended.code != 0:
        # The error shows neither the arguments nor the output: both may contain a password.
        raise UserError(f"{program} exited with {ended.code}", "run it by hand to see why")


def _by_webhook(address: str, message: Message) -> None:
    content = {**asdict(message), "text": f"{message.subject}\n{message.body}"}
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked when the file was read
        address, json.dumps(content).encode(), {"Content-Type": "application/json", "User-Agent": "trainjob"}
    )
    host = urlsplit(address).hostname
    try:
        with urllib.request.urlopen(request, timeout=_LIMIT_S):  # noqa: S310
            pass
    except urllib.error.HTTPError as error:
        raise UserError(f"{host} answers {error.code}", "check that the address is still valid") from None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{host} can't be reached: {type(getattr(error, 'reason', error)).__name__}",
            "check that this machine can reach the host",
        ) from None
