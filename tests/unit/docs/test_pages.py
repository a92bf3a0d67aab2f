"""The documentation says what the code does: its reference is generated, its commands parse, its links exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

from docs.reference_pages import reference
from tests.support import ROOT
from tests.support.cases import each
from trainjob.cli import main as entry
from trainjob.contract.paths import RunPaths

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
VARIABLE = re.compile(r"(?<![A-Z_])TRAINJOB_[A-Z0-9_]*[A-Z0-9]\b")
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


@each("path", reference())
def test_a_page_of_the_reference_is_up_to_date(path: str) -> None:
    text = reference()[path]
    assert (ROOT / "docs" / path).read_text(encoding="utf-8") == text, "make docs-outputs writes it anew"


def test_the_reference_has_every_variable_that_begins_as_ours_do() -> None:
    folders = (ROOT / "trainjob", ROOT / "batchfiles", ROOT / "standins", ROOT / "templates")
    files = [file for folder in folders for file in folder.rglob("*") if file.suffix in (".py", ".sh", ".j2", ".c")]
    used = {name for file in files for name in VARIABLE.findall(file.read_text(encoding="utf-8"))}
    documented = set(VARIABLE.findall(reference()["reference/environment.md"]))
    assert used - documented == set()
    assert documented - used == {"TRAINJOB_TEST_REQUIRE"}  # of the tests


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_first_screen_of_the_readme_has_the_two_commands_and_ci_runs_the_second() -> None:
    first_screen = (ROOT / "README.md").read_text().splitlines()[:25]
    shown = {line.partition("#")[0].strip() for line in first_screen}
    assert {"make demo", "make test"} <= shown
    assert "make test" in (ROOT / ".ci/run").read_text().splitlines()


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"- ([\w/-]+\.md)", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}


@each("page", PAGES)
def test_links_lead_to_files(page: Path) -> None:
    links = LINK.findall(page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@each("page", PAGES)
def test_every_command_parses(page: Path) -> None:
    for line in commands(page.read_text()):
        assert parse(line).info_name in line.split()


@each("page", PAGES)
def test_a_submission_to_a_shared_cluster_names_its_job(page: Path) -> None:
    """Without a job it would be refused there."""
    shared = [line for line in commands(page.read_text()) if re.match(r"trainjob submit .*--cluster (hpc|my)", line)]
    assert [line for line in shared if not re.search(r"--task|--job| -- ", line)] == []


def test_a_command_with_a_wrong_option_does_not_parse() -> None:
    with pytest.raises(Exception, match="--instanzes"):
        parse("trainjob plan --cluster pod64 --instanzes 8")


def test_every_file_of_a_run_directory_is_described() -> None:
    page = (ROOT / "docs" / "reference" / "run-directory.md").read_text()
    run = RunPaths("run")
    paths = [getattr(run, name) for name in vars(RunPaths) if not name.startswith("_")]
    files = {path.name for path in paths if isinstance(path, Path)} - {"run", "project"}
    assert [name for name in files if not name.startswith(".") and name not in page] == []


def commands(text: str) -> Iterator[str]:
    """Yield the command lines of trainjob's in the code blocks of a page, those that prepare an output as well."""
    for line in text.splitlines():
        found = re.match(r"(?:    |\$ )(trainjob [^|…·]*)", line)
        if found:
            yield found[1]


def parse(line: str) -> typer.Context:
    """Return what a command line parses to, without running it. Raises what the command line would end with."""
    words = shlex.split(line, comments=True)[1:]
    command: Any = typer.main.get_command(entry.app)
    name = "trainjob"
    context: Any = None
    while hasattr(command, "list_commands"):
        context = command.context_class(command, info_name=name, parent=context)
        name, *words = words
        command = command.get_command(context, name)
        assert command is not None, f"no command {name} in {line}"
    parsed: typer.Context = command.make_context(name, words, parent=context)
    return parsed
