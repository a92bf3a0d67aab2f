"""The packages that every run carries to its cluster are the same in every place that lists them."""

from __future__ import annotations

import ast
import re
import tomllib
from typing import Any

import pytest

from tests.support import ROOT
from trainjob.contract.package import RUNTIME_PACKAGES

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def test_ruff_checks_what_travels_for_the_oldest_python() -> None:
    oldest = PROJECT["ruff"]["per-file-target-version"]
    folders = {name.split("/")[1] for name, version in oldest.items() if re.fullmatch(r"trainjob/\w+/\*", name)}
    assert folders == set(RUNTIME_PACKAGES)
    assert {oldest[f"trainjob/{name}/*"] for name in RUNTIME_PACKAGES} == {"py38"}


def test_what_travels_imports_nothing_of_the_command_line() -> None:
    layers = next(one["layers"] for one in PROJECT["importlinter"]["contracts"] if one["type"] == "layers")
    lowest = [re.findall(r"trainjob\.(\w+)", layer) for layer in layers[-4:]]
    assert {name for layer in lowest for name in layer} == set(RUNTIME_PACKAGES)
    forbidding = {"typer", "jinja2", "yaml", "rich", "platformdirs"}
    held = {
        source.partition(".")[2]
        for one in PROJECT["importlinter"]["contracts"]
        if forbidding <= set(one.get("forbidden_modules", ())) | {"typer"}
        for source in one["source_modules"]
    }
    assert held == set(RUNTIME_PACKAGES)


def test_the_command_line_starts_the_runtime_and_imports_none_of_it() -> None:
    (law,) = (
        one for one in PROJECT["importlinter"]["contracts"] if one["name"].startswith("Nobody imports the runtime")
    )
    packages = {path.parent.name for path in (ROOT / "trainjob").glob("*/__init__.py")}
    assert {name.partition(".")[2] for name in law["source_modules"]} == packages - {"launch", "train"}


@pytest.mark.parametrize("name", RUNTIME_PACKAGES)
def test_the_first_line_of_a_package_says_that_it_travels(name: str) -> None:
    tree = ast.parse((ROOT / "trainjob" / name / "__init__.py").read_text())
    assert (ast.get_docstring(tree) or "").startswith("Travels to the cluster. ")


def test_no_other_package_says_that_it_travels() -> None:
    inits = (ROOT / "trainjob").glob("*/__init__.py")
    assert {one.parent.name for one in inits if "Travels to the cluster" in one.read_text()} == set(RUNTIME_PACKAGES)


def test_the_page_about_the_code_lists_every_package_and_what_travels() -> None:
    rows = re.findall(r"^\| `trainjob/(\w+)/` \|", CONTRIBUTING, flags=re.MULTILINE)
    assert sorted(rows) == sorted(path.parent.name for path in (ROOT / "trainjob").glob("*/__init__.py"))
    (sentence,) = re.findall(r"needs Python 3\.11\. (.*?) work with \*\*Python 3\.8", CONTRIBUTING, flags=re.DOTALL)
    assert tuple(re.findall(r"`(\w+)`", sentence)) == RUNTIME_PACKAGES
