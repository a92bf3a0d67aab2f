"""Faults that are drawn into the code are other code, and each is one place."""

from __future__ import annotations

import ast

import yaml

from benchmarks.mutants import HARMLESS, mutants_of
from tests.support import ROOT

SOURCE = '''"""A docstring with 1 and True."""

from __future__ import annotations


def ends(é: int, is_last: bool = False) -> int:
    """Say it: 3."""
    if not is_last and é <= 2:
        print(f"{é + 1}")
        return é + 1
    while True:
        break
    if é:
        return None
    raise ValueError
'''


def test_every_fault_is_other_code_in_one_place() -> None:
    found = list(mutants_of("ends.py", SOURCE))
    changed = [ast.unparse(ast.parse(one.text(SOURCE))) for one in found]
    assert ast.unparse(ast.parse(SOURCE)) not in changed
    assert len(set(changed)) == len(changed)
    assert {(" ".join(one.was.split()), one.instead) for one in found} == {
        ("False", "True"),
        ("not is_last and é <= 2", "(not is_last or é <= 2)"),
        ("not is_last", "(is_last)"),
        ("é <= 2", "(é < 2)"),
        ("2", "3"),
        ('print(f"{é + 1}")', "pass"),
        ("return é + 1", "return None"),
        ("é + 1", "(é - 1)"),
        ("1", "2"),
        ("True", "False"),
        ("break", "continue"),
        ("raise ValueError", "pass"),
    }


def test_what_is_listed_as_harmless_is_a_fault_of_the_code_as_it_is() -> None:
    for file, listed in yaml.safe_load(HARMLESS.read_text()).items():
        faults = {(one.within, one.change()) for one in mutants_of(file, (ROOT / file).read_text())}
        assert {(one["within"], one["change"]) for one in listed} <= faults, file
