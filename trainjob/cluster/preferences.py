"""The user's configuration, config.yaml in the configuration folder: who is notified about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import platformdirs

from trainjob.cluster.common import Line, Port
from trainjob.cluster.strict import BreachError, Rule, Strict, key, required

Event = Literal["ended", "failed", "stalled", "limit"]
Seconds = Annotated[float, Rule(above=0)]


class Mail(Strict):
    """A mail, sent through the user's own server."""

    to: list[Line] = required("Addresses that get the mail.")
    sender: Line = required("Address of the sender.")
    server: Line = key("localhost", "Host that accepts mail.")
    port: Port = key(25, "Port of that host: usually 587 with starttls, 465 with tls.")
    security: Literal["none", "starttls", "tls"] = key("none", "How the connection is encrypted.")
    user: Line | None = key(None, "User name on that host. Absent: the server needs none.")
    secrets_file: Line | None = key(
        None, "File with the line SMTP_PASSWORD=…, mode 0600. Needed with user, and read when a mail is sent."
    )

    def enforce_rules(self) -> None:
        """Raise BreachError for a user without a password, and for a password that would be sent in clear text."""
        if (self.user is None) != (self.secrets_file is None):
            raise BreachError("user", "and secrets_file need each other", "give both, or neither")
        if self.user is not None and self.security == "none":
            raise BreachError(
                "security", "is none, which would send the password in clear text", "choose tls or starttls"
            )


class Notify(Strict):
    """Who is notified about which events. Every channel that is given is used for every event."""

    on: list[Event] | None = key(None, "Events: ended (well or cancelled), failed, stalled, limit. Absent: all.")
    command: list[Line] | None = key(
        None, "A program and its arguments, word by word; the message is in its environment and on its input."
    )
    webhook: Line | None = key(None, "Address that gets the message as JSON. The file must have mode 0600 then.")
    mail: Mail | None = key(None, "A mail.")
    stalled_after_s: Seconds = key(900.0, "Seconds without a sign of life after which a run counts as stalled.")
    limit_within_s: Seconds = key(1800.0, "Seconds before its time limit at which the event limit occurs.")
    every_s: Seconds = key(60.0, "Seconds between two checks of the runs.")
    background: bool = key(True, "Whether a background process checks the runs. false: only `trainjob notify` does.")

    def enforce_rules(self) -> None:
        """Raise BreachError for an invalid webhook, and if nobody would be notified."""
        if self.webhook is not None and urlsplit(self.webhook).scheme not in ("http", "https"):
            raise BreachError("webhook", "is not an address", "begin it with https:// or http://")
        if not (self.command or self.webhook or self.mail):
            raise BreachError("command", "is missing, and so are webhook and mail", "give at least one")


class Preferences(Strict):
    """The whole of config.yaml."""

    notify: Notify | None = key(None, "Who is notified when a run ends, fails, stalls or approaches its time limit.")


def file() -> Path:
    """Return the path of the user's configuration, which need not exist."""
    return Path(platformdirs.user_config_dir("trainjob")) / "config.yaml"
