"""The limits of CONTRIBUTING.md on the size of modules and functions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import trainjob

_PACKAGE = Path(trainjob.__file__).parent
_MOST_LINES_OF_MODULE, _MOST_LINES_OF_FUNCTION = 300, 40


@pytest.mark.parametrize("path", sorted(_PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(_PACKAGE)))
def test_a_module_and_its_functions_fit_on_few_pages(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= _MOST_LINES_OF_MODULE
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lines = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: count for name, count in lines.items() if count > _MOST_LINES_OF_FUNCTION} == {}
