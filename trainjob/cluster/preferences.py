"""The user's own configuration, config.yaml in the configuration folder: who is notified when a run ends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import platformdirs

from trainjob.cluster.common import Line, Port
from trainjob.cluster.strict import BreachError, Rule, Strict, key, required

Event = Literal["ended", "failed", "stalled", "limit"]
Seconds = Annotated[float, Rule(above=0)]


@dataclass(frozen=True, kw_only=True)
class Mail(Strict):
    """A mail, handed to a server of the user's."""

    to: list[Line] = required("Addresses that it goes to.")
    sender: Line = required("Address that it comes from.")
    server: Line = key("localhost", "Host that takes mail.")
    port: Port = key(25, "Port of that host: 587 with starttls, 465 with tls, as a rule.")
    security: Literal["none", "starttls", "tls"] = key("none", "How the connection is encrypted.")
    user: Line | None = key(None, "User name there. Absent: the server wants none.")
    secrets_file: Line | None = key(
        None, "File with the line SMTP_PASSWORD=…, mode 0600. Needed with user, and read when a mail is sent."
    )

    def enforce_rules(self) -> None:
        """Raise BreachError for a user without a password, and for a password that would travel in clear text."""
        if (self.user is None) != (self.secrets_file is None):
            raise BreachError("user", "and secrets_file need each other", "give both, or neither")
        if self.user is not None and self.security == "none":
            raise BreachError(
                "security", "is none, which would send the password in clear text", "choose tls or starttls"
            )


@dataclass(frozen=True, kw_only=True)
class Notify(Strict):
    """Who is notified of what about runs. Each way that is given is used for each of these events."""

    on: list[Event] | None = key(None, "Events: ended (well or cancelled), failed, stalled, limit. Absent: all.")
    command: list[Line] | None = key(
        None, "A program and its arguments, word by word; the message is in its environment and on its input."
    )
    webhook: Line | None = key(None, "Address that gets the message as JSON. The file must have mode 0600 then.")
    mail: Mail | None = key(None, "A mail.")
    stalled_after_s: Seconds = key(900.0, "Seconds without a sign of life after which a run counts as stalled.")
    limit_within_s: Seconds = key(1800.0, "Seconds before its time limit at which a run approaches it.")
    every_s: Seconds = key(60.0, "Seconds between two looks at the runs.")
    background: bool = key(True, "A process in the background looks. false: only `trainjob notify` does.")

    def enforce_rules(self) -> None:
        """Raise BreachError for a webhook that is no address, and where nobody is told."""
        if self.webhook is not None and urlsplit(self.webhook).scheme not in ("http", "https"):
            raise BreachError("webhook", "is no address", "begin it with https:// or http://")
        if not (self.command or self.webhook or self.mail):
            raise BreachError("command", "is missing, and so are webhook and mail", "give at least one")


@dataclass(frozen=True, kw_only=True)
class Preferences(Strict):
    """The whole of config.yaml."""

    notify: Notify | None = key(None, "Who is told when a run ends, fails, stalls or comes near its limit.")


def file() -> Path:
    """Return where the user's configuration lies; it need not exist."""
    return Path(platformdirs.user_config_dir("trainjob")) / "config.yaml"
