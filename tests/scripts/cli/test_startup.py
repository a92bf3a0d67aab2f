"""What `plan` and `render` load: nothing that they have no use for."""

from __future__ import annotations

import sys

import pytest

from tests.support.programs import ran

# torch and its kin cost seconds, the others a tenth of a start each.
_NEVER = {
    "torch",
    "numpy",
    "pydantic",
    "rich",
    "email",
    "importlib.metadata",
    "logging",
    "concurrent.futures",
    "trainjob.contract.programs.secrets_in_shell",
}


@pytest.mark.parametrize(
    ("command", "unused"), [("plan", {"jinja2", "trainjob.machines.ssh"}), ("render", {"tarfile"})]
)
def test_a_command_loads_what_it_needs(command: str, unused: set[str]) -> None:
    program = f"import sys; from trainjob.cli.main import main\ntry: main([{command!r}])\nfinally: print(*sys.modules)"
    ended = ran([sys.executable, "-c", program], code=0)
    loaded = set(ended.stdout.splitlines()[-1].split())
    assert "trainjob.planning.build" in loaded
    assert loaded & (_NEVER | unused) == set()
