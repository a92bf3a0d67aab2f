"""The user's configuration, config.yaml in the configuration folder: cluster in use, budget, and who is notified."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import platformdirs

from trainjob.cluster.common import Budget, Line
from trainjob.cluster.strict import BreachError, Rule, Strict, key

Event = Literal["ended", "failed", "stalled", "limit"]
Seconds = Annotated[float, Rule(above=0)]


class Notify(Strict):
    """Who is notified about which events. Every channel that is given is used for every event."""

    on: list[Event] | None = key(None, "Events: ended (well or cancelled), failed, stalled, limit. Absent: all.")
    command: list[Line] | None = key(
        None, "A program and its arguments, word by word; the message is in its environment and on its input."
    )
    webhook: Line | None = key(None, "Address that gets the message as JSON. The file must have mode 0600 then.")
    stalled_after_s: Seconds = key(900.0, "Seconds without progress after which a run counts as stalled.")
    limit_within_s: Seconds = key(1800.0, "Seconds before its time limit at which the event limit occurs.")
    every_s: Seconds = key(60.0, "Seconds between two checks of the runs.")
    background: bool = key(True, "Whether a background process checks the runs. false: only `trainjob notify` does.")

    def enforce_rules(self) -> None:
        """Raise BreachError for an invalid webhook, and if nobody would be notified."""
        if self.webhook is not None and urlsplit(self.webhook).scheme not in ("http", "https"):
            raise BreachError("webhook", "is not an address", "begin it with https:// or http://")
        if not (self.command or self.webhook):
            raise BreachError("command", "is missing, and so is webhook", "give at least one")


class Preferences(Strict):
    """The whole of config.yaml."""

    cluster: Line | None = key(None, "The cluster of commands that name none; `trainjob cluster use` writes it.")
    budget: Budget | None = key(None, "What your runs may cost together, on any cluster; `submit` refuses more.")
    notify: Notify | None = key(None, "Who is notified when a run ends, fails, stalls or approaches its time limit.")


def file() -> Path:
    """Return the path of the user's configuration, which need not exist."""
    return Path(platformdirs.user_config_dir("trainjob")) / "config.yaml"
