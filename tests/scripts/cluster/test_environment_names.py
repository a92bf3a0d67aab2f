"""Names of environment variables, held against what bash hands on."""

from __future__ import annotations

from tests.support.programs import ran
from trainjob.cluster.common import refuse_name
from trainjob.contract.errors import RuleError


def test_what_bash_does_not_hand_on_is_refused() -> None:
    variables = ran(["bash", "-c", "compgen -v"], code=0).stdout.split()
    assert "RANDOM" in variables
    accepted = [name for name in variables if not _is_refused(name) and not name.startswith("LC_")]
    assert [name for name in accepted if not _arrives(name)] == []


def _is_refused(name: str) -> bool:
    try:
        refuse_name(name)
    except RuleError:
        return True
    return False


def _arrives(name: str) -> bool:
    script = f"set -euo pipefail; export {name}='x y'; cd /; /usr/bin/env; echo ended=well"
    done = ran(["/bin/bash", "-c", script])
    return {f"{name}=x y", "ended=well"} <= set(done.stdout.split("\n"))
