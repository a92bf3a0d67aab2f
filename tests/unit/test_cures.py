"""Every error that a user can meet says what to do about it, apart from what is wrong."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import trainjob

_PACKAGE = Path(trainjob.__file__).parent
_ERRORS = frozenset(
    (
        *("UserError", "RuleError", "CommandError", "TimedOutError", "ClusterError", "JobError", "HostlistError"),
        *("FolderError", "LaunchError", "NotSubmittedError", "SecretsError", "SshError"),
    )
)


@pytest.mark.parametrize("package", sorted(path.name for path in _PACKAGE.iterdir() if path.is_dir()))
def test_every_error_has_a_cure(package: str) -> None:
    without = [
        f"{path.relative_to(_PACKAGE)}:{raised.lineno}"
        for path in sorted((_PACKAGE / package).rglob("*.py"))
        for raised in ast.walk(ast.parse(path.read_text()))
        if isinstance(raised, ast.Raise) and _has_no_cure(raised.exc)
    ]
    assert without == []


def _has_no_cure(raised: ast.expr | None) -> bool:
    if not isinstance(raised, ast.Call) or not isinstance(raised.func, ast.Name) or raised.func.id not in _ERRORS:
        return False
    is_star = any(isinstance(word, ast.Starred) for word in raised.args)
    return len(raised.args) < 2 and not is_star and not any(word.arg == "cure" for word in raised.keywords)
