"""How a host is reached from another machine."""

from __future__ import annotations

import pytest

from trainjob.machines.ssh import onward


@pytest.mark.parametrize(("terminal", "option"), [(True, "-t"), (False, "-T")])
def test_a_terminal_is_requested_only_where_there_is_one(terminal: bool, option: str) -> None:
    """Else ssh says of a user whose configuration requests one that none will be allocated."""
    assert onward.interactive("h2", ["true"], terminal=terminal)[:2] == ["ssh", option]
    assert onward.command("h2", ["true"])[4:6] == ["ssh", "-T"]
