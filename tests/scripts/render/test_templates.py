"""A site's own templates: they extend ours, they can't print a value unquoted, and their faults are named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given

from tests.support.examples import examples
from tests.support.render_cases import HOSTILE, OURS, TEXT, cluster, explained_script, request, script, site_template
from trainjob.contract.errors import UserError
from trainjob.contract.quoting import Shell, word
from trainjob.render import environment
from trainjob.render.environment import TemplateError
from trainjob.render.sourced import Sourced, SourcedShell, beside

EXTENDS = '{% extends "trainjob/jobs/local.sh.j2" %}\n'
EVIL = "a b; touch canary"


def printed(template: str, *, explain: bool = False, **values: object) -> str:
    return environment.make(OURS, explain=explain).from_string(template).render(values)


def in_bash(shell: str) -> list[str]:
    ended = subprocess.run(["bash"], input=f"printf '%s\\0' {shell}".encode(), capture_output=True, check=True)
    return ended.stdout.decode().split("\0")[:-1]


def refused(tmp_path: Path, template: str, name: str = "jobs/local.sh.j2") -> str:
    with pytest.raises(UserError) as caught:
        script(request(), site_template(tmp_path, template, name))
    return str(caught.value)


# --- What is printed is quoted, however a template gets at it.

LISTED = [EVIL, "$(x)", ""]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ text }}", [EVIL]),
        ("{{ text | upper }}", [EVIL.upper()]),
        ("{{ text | trim }}", [EVIL]),
        ("{{ text | default('x') }}", [EVIL]),
        ("{{ text | replace('a', '$(x)') }}", ["$(x) b; touch c$(x)n$(x)ry"]),
        ("{{ text | string | indent }}", [EVIL]),
        ("{{ '%s;%s' | format(text, text) }}", [f"{EVIL};{EVIL}"]),
        ("{{ text[:3] }}", ["a b"]),
        ("{{ 'a & b' }}", ["a & b"]),
        ("{{ 'a & b' | upper }}", ["A & B"]),
        ("{{ 'a & b' if text else '' }}", ["a & b"]),
        ("{{ '--a=' ~ text }}", [f"--a={EVIL}"]),
        ("{{ '2>' ~ text ~ '&' }}", [f"2>{EVIL}&"]),
        ("{{ '2>' ~ finished ~ text }}", [f"2>finished shell{EVIL}"]),
        ("{{ text + text }}", [EVIL + EVIL]),
        ("{% set made %}{{ text }}{% endset %}{{ made }}", [EVIL]),
        ("{% set made %}x{% endset %}{{ made ~ text }}", [f"x{EVIL}"]),
        ("{% set made %}x{% endset %}{{ made + text }}", [f"x{EVIL}"]),
        ("{% set made %}xA{% endset %}{{ made | replace('A', text) }}", [f"x{EVIL}"]),
        ("{% macro m(v) %}{{ v }}{% endmacro %}{{ m(text) }}", [EVIL]),
        ("{% macro m(v) %}{{ v }} {{ caller() }}{% endmacro %}{% call m(text) %}{{ text }}{% endcall %}", [EVIL, EVIL]),
        ("{% filter trim %} {{ text }} {% endfilter %}", [EVIL]),
        ("{% autoescape false %}{{ text }}{% endautoescape %}", [EVIL]),
        ("{% for one in listed %}{{ one }} {% endfor %}", LISTED),
        ("{{ listed | join(' ') }}", LISTED),
        ("{{ listed | join(',') }}", [",".join(LISTED)]),
        ("{{ listed | join(text) }}", [EVIL.join(LISTED)]),
        ("{{ listed | map('upper') | join(' ') }}", [one.upper() for one in LISTED]),
        ("{{ pairs | map('join', '=') | join(' ') }}", [f"--a={EVIL}", "--b=c d"]),
        ("{{ listed }}", [str(LISTED)]),
    ],
)
@pytest.mark.parametrize("explain", [False, True])
def test_every_value_is_quoted(template: str, words: list[str], explain: bool) -> None:
    values = {
        "text": Sourced(EVIL, "here"),
        "finished": SourcedShell(Shell("'finished shell'"), "here"),
        "listed": LISTED,
        "pairs": [(Shell("--a"), Sourced(EVIL, "here")), (Shell("--b"), SourcedShell(word("c d"), "here"))],
    }
    text = printed(template, explain=explain, **values)
    assert in_bash("\n".join(line for line, _, _ in beside(text))) == words


@examples(15)
@given(TEXT, TEXT)
def test_pieces_side_by_side_are_one_word(first: str, second: str) -> None:
    text = printed("{{ first ~ finished ~ second }}", first=first, second=second, finished=Shell("-"))
    assert in_bash(text) == [f"{first}-{second}"]


def test_plain_pieces_are_plain_text_that_can_be_compared() -> None:
    assert printed("{% if 'a' ~ text == 'ab c' %}yes{% endif %}", text="b c") == "yes"


def test_finished_shell_is_printed_as_it_stands() -> None:
    assert printed("{{ shell }}", shell=Shell('"$HOME"/x')) == '"$HOME"/x'


@pytest.mark.parametrize("name", ["safe", "escape", "e", "forceescape", "tojson", "urlize", "xmlattr", "striptags"])
def test_no_filter_prints_a_value_unquoted(tmp_path: Path, name: str) -> None:
    assert f"No filter named '{name}'" in refused(tmp_path, f"{{{{ title | {name} }}}}")


# --- A site's template.


def test_a_site_adds_to_a_block_of_ours(tmp_path: Path) -> None:
    site = site_template(tmp_path, EXTENDS + "{% block setting %}{{ super() }}ulimit -n 65536\n{% endblock %}")
    ours, theirs = script(request()).splitlines(), script(request(), site).splitlines()
    assert [line for line in theirs if line not in ours] == ["ulimit -n 65536"]
    assert [line for line in ours if line not in theirs] == []


def test_a_block_within_a_block_is_a_sites_own(tmp_path: Path) -> None:
    site = site_template(
        tmp_path, EXTENDS + "{% block setting %}{% block limits %}ulimit -n 4\n{% endblock %}{% endblock %}"
    )
    assert "ulimit -n 4" in script(request(), site)


def test_a_block_of_ours_is_not_quoted_again(tmp_path: Path) -> None:
    site = site_template(tmp_path, EXTENDS + "{% block begin %}{{ super() }}{% endblock %}")
    assert script(request(), site) == script(request())


def test_what_a_sites_template_prints_is_quoted(tmp_path: Path) -> None:
    site = site_template(tmp_path, EXTENDS + "{% block setting %}{{ super() }}echo {{ title }}\n{% endblock %}")
    asked = request(name="'; touch canary #", command=["true"])
    (line,) = [line for line in script(asked, site).splitlines() if line.startswith("echo ")]
    assert in_bash(line.removeprefix("echo ")) == ["'; touch canary # on here"]


def test_a_sites_script_with_every_hostile_word_parses(tmp_path: Path) -> None:
    site = site_template(
        tmp_path, EXTENDS + "{% block setting %}{{ super() }}log {{ command | join(' ') }}\n{% endblock %}"
    )
    text = script(request(command=["echo", *HOSTILE]), site)
    assert subprocess.run(["bash", "-n"], input=text.encode(), capture_output=True, check=False).stderr == b""


def test_a_site_replaces_a_part_of_ours(tmp_path: Path) -> None:
    site = site_template(tmp_path, "  # settings of our own\n", "parts/setting.sh.j2")
    assert "# settings of our own\n" in script(request(), site)
    assert "use_python" not in script(request(), site)


def test_explaining_a_sites_template_gives_its_very_lines(tmp_path: Path) -> None:
    site = site_template(tmp_path, EXTENDS + "{% block setting %}{{ super() }}echo {{ 'x' ~ python }}{% endblock %}")
    asked = request(cluster(python="~/a b/python"))
    assert "\n".join(line for line, _, _ in beside(explained_script(asked, site))) == script(asked, site)


# --- Faults, each with its message.


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "{{ nothing }}",
            "template jobs/local.sh.j2: 'nothing' is undefined: see the context's names in CONTRIBUTING.md",
        ),
        ("{% if nothing %}{% endif %}", "'nothing' is undefined"),
        ("{% for one in nothing %}{% endfor %}", "'nothing' is undefined"),
        ("{{ 'a' ~ nothing }}", "'nothing' is undefined"),
        ("{{ [nothing] | join }}", "'nothing' is undefined"),
        ("{{ title.nothing }}", "has no attribute 'nothing'"),
        ("{{ data_dir }}", "prints a value that is not set: test it with {% if … is not none %} first"),
        ("{{ [data_dir] | join }}", "prints a value that is not set"),
        ("a\n{% if %}", "template jobs/local.sh.j2, line 2: Expected an expression"),
        (
            '{% extends "jobs/mine.sh.j2" %}',
            "template jobs/mine.sh.j2 does not exist; jobs/local.sh.j2 or a template it extends names it",
        ),
        (
            '{% extends "jobs/local.sh.j2" %}',
            "extends or includes itself: to extend ours, name trainjob/jobs/local.sh.j2",
        ),
        (
            EXTENDS + "{% block seting %}x{% endblock %}",
            "template jobs/local.sh.j2 fills block seting, which trainjob/jobs/local.sh.j2 does not have: "
            "did you mean setting? It has begin, directives, folder, launch, library, setting, wrong_folder",
        ),
        ("{{ 1 / 0 }}", "template jobs/local.sh.j2: ZeroDivisionError: division by zero"),
        ("{{ title(1) }}", "template jobs/local.sh.j2: TypeError: 'Sourced' object is not callable"),
        ("{{ 'a\\0b' }}", "holds a NUL character"),
    ],
)
def test_a_fault_of_a_template_is_named(tmp_path: Path, template: str, message: str) -> None:
    assert message in refused(tmp_path, template)


def test_a_template_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    site = site_template(tmp_path, "")
    (site / "jobs/local.sh.j2").write_bytes(b"\xff")
    with pytest.raises(TemplateError, match=r"template jobs/local.sh.j2: UnicodeDecodeError"):
        script(request(), site)
