"""What a command imports, for every import is waited for."""

from __future__ import annotations

import sys

import pytest

from tests.support.programs import ran

HEAVY = {"torch", "numpy", "yaml", "jinja2", "pydantic", "rich", "ansible", "paramiko"}


@pytest.mark.parametrize("line", ["--help", "submit --help", "list", "list --limit 3"])
def test_a_command_loads_only_what_it_uses(line: str) -> None:
    words = line.split()
    program = f"import sys\ntry:\n    from trainjob.cli.main import main\n    main({words})\nfinally:\n"
    program += "    print('loaded', *sys.modules)\n"
    ended = ran([sys.executable, "-c", program], code=0)
    loaded = set(ended.stdout.splitlines()[-1].split())
    assert "trainjob.cli.main" in loaded
    assert not loaded & HEAVY
