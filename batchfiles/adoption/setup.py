"""The pass over the statements around a training: each gets one decision, and stands in the account once."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from batchfiles.adoption.account import IN_COMMAND, Account, Where
from batchfiles.adoption.asked import Keys
from batchfiles.adoption.command import AdoptedCommand
from batchfiles.adoption.decisions import (
    Decision,
    Needs,
    Surroundings,
    after_training,
    before_training,
    can_be_stated,
    is_export,
    is_site_file,
    may_be_unset,
    may_fail,
)
from batchfiles.adoption.parts import Parts, Role, Statement, names_in, takes_arguments
from batchfiles.adoption.places import PathOrigin
from batchfiles.adoption.start import AdoptedStart
from batchfiles.bash.commands import ShellCommand
from batchfiles.bash.expansion import text_of
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.script import BatchScript, nodes_of
from trainjob.contract.programs.helpers import LEAVES_NOTHING, SHELLS
from trainjob.contract.programs.ranks import PLACE_VARIABLES
from trainjob.contract.programs.secret_names import holds_secret, is_secret_variable

_OF_FILES = ("mkdir", "touch", "rm", "cp", "mv", "ln", "tar", "unzip", "rsync", "chmod", "make", "ls", "cat")
_OF_THE_SHELL = ("", "cd", "pushd", "popd", "set", "read")
_FUNCTION = re.compile(r"function\s|[\w-]+\s*\(\)")
# What does the same in each folder: commands, and files of sites.
_ANYWHERE = re.compile(
    r"|\[\[?|test|module|ml|conda|mamba|micromamba|spack|eval|unset|ulimit|umask|shopt|set|true|:|echo|printf|date|hostname|exit|read"
)
_ABSOLUTE = re.compile(r"[\"']?(?:[/~$]|[\w./-]+/activate$|\d+$)")
_HERE = re.compile(r"[$`]\(?pwd\b|\$\{?PWD\b|(?:\[|\btest)\s(?:[^]]*\s)?-[defhLrswx]\s")
_SITE = re.compile(
    r"module|ml|source|\.|conda|mamba|micromamba|pyenv|spack|eval|unset|ulimit|umask|shopt|nvm|guix|easybuild|alias"
)


def read_setup(
    script: BatchScript,
    launch: LaunchedProgram,
    start: AdoptedStart,
    parts: Parts,
    run: AdoptedCommand,
    keys: Keys,
    account: Account,
    place: PathOrigin,
) -> None:
    """Fill in environment and prologue, and say what became of each statement around the training."""
    container, layer = keys.cluster.get("container"), launch.layer("container")
    has_shell = run.words[:2] == ["bash", "-c"]
    if has_shell:
        run.words[2] = place.in_copy(run.words[2], launch.command.at)
    modules = [one.span[1] for one in parts.before if any(_SITE.fullmatch(two.name) for two in one.commands)]
    around = Surroundings(
        script,
        launch,
        parts,
        place,
        threads=max(1, (start.cpus or start.ranks) // start.ranks) if start.per == "rank" else None,
        container=str(container["runtime"]) if isinstance(container, dict) else None,
        prefix="SINGULARITYENV" if layer is not None and layer.program == "singularity" else "APPTAINERENV",
        arrays=frozenset(one.name for one in script.assignments if one.array is not None and not one.source),
        is_decided=_is_decided(script, launch),
        consumed=_consumed(script, parts, account),
        after_modules=min(modules, default=len(script.raw)),
    )
    decided, needs = _decided(around, Needs(frozenset(), frozenset(run.names)))
    goes_on = any(may_fail(around, *one) for one in decided if one[0].span not in place.moves)
    if goes_on:
        decided = [(one, _with_own_options(one, decision)) for one, decision in decided]
    lines: list[tuple[str, str]] = [(text, "") for text in _exporting(keys.exports, around)]
    # No move is needed behind the last statement with a relative path.
    last_relative = max(
        (
            at
            for at, (one, decision) in enumerate(decided)
            if decision.prologue and one.span not in place.moves and _is_relative(around, one)
        ),
        default=-1,
    )
    for at, (one, decision) in enumerate(decided):
        comment = _comment(one)
        for name, value in (decision.env or {}).items():
            keys.of_job("env")[name] = value
            if comment:
                keys.comments["env", name] = comment
        if one.span not in place.moves or at < last_relative:
            lines += [(text, comment if not number else "") for number, text in enumerate(decision.prologue)]
        if (decision.prologue or decision.env) and one.span not in place.moves:
            place.note_outside(one.text, one.line, one.span[0], account)
        account.note(decision.where, one.line, _without_secret(one, decision), decision.what, one.last, one.span)
    inner = [decision.in_command for _, decision in decided if decision.in_command]
    if inner:
        run.words[2] = "\n".join([*inner, run.words[2]])
    if run.env:
        keys.of_job("env").update({name: value for name, value in run.env.items() if can_be_stated(name)})
    set_later = {two.name for one, decision in decided if decision.prologue for two in one.assignments}
    for name in sorted(set_later & run.env.keys()):
        what = "the prologue comes after env, and sets it: set it in the program"
        account.note(Where.LOST, launch.place, f"{name}={run.env[name]}", what)
    if last_relative >= 0 and not lines[0][0].startswith(f'cd "{place.copy}'):
        lines.insert(0, (f'cd "{place.copy}"', ""))
    own = _exported_for_command(script, needs, lines)
    if own and has_shell:
        run.words[2] = f"export -n {' '.join(own)}\n{run.words[2]}"
    if script.arguments and any(takes_arguments(text) and not _FUNCTION.match(text) for text, _ in lines):
        lines.insert(0, (f"set -- {shlex.join(script.arguments)}", "the arguments of the file"))
    _fill_prologue(lines, keys, goes_on=goes_on)
    _log_in(script, launch, needs, lines, keys, account)
    _note_unset(script, account)


def _decided(around: Surroundings, needs: Needs) -> tuple[list[tuple[Statement, Decision]], Needs]:
    """Return each statement with its decision, and what all that is kept needs; `needs` are those of the command."""
    decided: list[tuple[Statement, Decision]] = []
    for one in reversed(around.parts.before):  # what is kept needs those before it
        decision = before_training(around, one, needs)
        needs = _with_needs_of(one, decision, needs)
        decided.insert(0, (one, decision))
    if around.container not in ("docker", "podman"):  # those get only what env states
        decided = list(_in_order(decided, around))
    return [*decided, *((one, after_training(around, one)) for one in around.parts.after)], needs


def _in_order(decided: list[tuple[Statement, Decision]], around: Surroundings) -> Iterator[tuple[Statement, Decision]]:
    """Yield the decisions; what follows a kept statement for the same variable is kept too: env comes before all."""
    kept: set[str] = set()
    given: dict[str, str] = {}
    has_run = False
    for one, found in decided:
        env = dict(found.env or {})
        decision = found
        later = {
            name: env.pop(name)
            for name in list(env)
            if name in kept or has_run or given.setdefault(name, env[name]) != env[name]
        }
        if later:
            lines = _exporting({name: shlex.quote(value) for name, value in later.items()}, around)
            what = "; ".join(["prologue", *(f"env: {name}" for name in env)])
            decision = replace(decision, where=Where.CLUSTER, what=what, env=env, prologue=[*decision.prologue, *lines])
        if found.prologue:
            kept |= {two.name for two in one.assignments} | (names_in(one.text) - given.keys())
            kept |= one.declared if one.kind == "unset_command" else set()
            has_run = has_run or any(_runs_program(two) for two in one.commands)
        yield one, decision


def _exporting(values: Mapping[str, str], around: Surroundings) -> list[str]:
    inside = [f'export {around.prefix}_{name}="${name}"' for name in values] if around.container == "apptainer" else []
    return [*(f"export {name}={value}" for name, value in values.items()), *inside]


def _runs_program(one: ShellCommand) -> bool:
    """Return whether a command starts what may read its environment, or sets variables that nobody sees here."""
    if one.name in ("source", "."):
        return not is_site_file(one)
    if "substitution" in one.within or one.name in (*LEAVES_NOTHING, *_OF_FILES, *_OF_THE_SHELL):
        return False
    if one.name == "eval":
        text = " ".join(word.source + word.value.commands() for word in one.words[1:])
        return re.search(r"conda|mamba|pyenv|module|direnv|spack", text) is None
    return one.name in ("pip", "pip3", "uv") or _SITE.fullmatch(one.name) is None


def _exported_for_command(script: BatchScript, needs: Needs, lines: list[tuple[str, str]]) -> list[str]:
    """Return the variables that the prologue exports only because the command's shell reads them."""
    text = "\n".join(text for text, _ in lines)
    theirs = {one.name for one in script.assignments if one.exported}
    theirs |= {
        name
        for node in nodes_of(script.root, "declaration_command")
        for name in re.findall(r"(?<=\s)([A-Za-z_]\w*)(?==|\s|$)", text_of(node))
        if is_export(text_of(node))
    }
    assigned = {one.name for one in script.assignments if not one.source} - theirs
    return sorted(name for name in needs.command & assigned if re.search(rf"(?m)^export (?:\w+ )*{name}\b", text))


def _fill_prologue(lines: list[tuple[str, str]], keys: Keys, *, goes_on: bool) -> None:
    if goes_on:
        lines[:] = [("set +eo pipefail", "as in the file: a failure here does not end the job"), *lines]
        lines.append(("set -eo pipefail", ""))
    if lines:
        keys.cluster["prologue"] = [text for text, _ in lines]
    for number, (_, comment) in enumerate(lines):
        if comment:
            keys.comments["prologue", str(number)] = comment


def _with_own_options(one: Statement, decision: Decision) -> Decision:
    """Keep what changes the options of the file's shell."""
    if decision.where is not Where.TRAINJOB or {two.name for two in one.commands} != {"set"}:
        return decision
    return replace(decision, where=Where.CLUSTER, what="prologue", prologue=[one.text])


def _with_needs_of(one: Statement, decision: Decision, needs: Needs) -> Needs:
    command = needs.command | names_in(decision.in_command)
    prologue = needs.prologue.union(*(names_in(text) for text in decision.prologue))
    if decision.prologue and one.kind == "declaration_command" and not one.assignments:
        prologue |= one.declared
    if decision.prologue or decision.in_command:  # what adds to a value needs the value
        prologue |= {two.name for two in one.assignments if re.match(r"\w+(?:\[[^]]*\])?\+=|(?!\w+=)", two.text)}
    if decision.prologue:
        prologue |= {two.words[0].text for two in one.commands if two.words}
    return Needs(prologue, command)


def _is_decided(script: BatchScript, launch: LaunchedProgram) -> bool:
    """Return whether the file itself tells that the branch with the launch is the one that runs."""
    around = {one.number: one.branch for one in launch.command.conditions}
    return any(
        one.command.dead and around.get(other.number, other.branch) != other.branch
        for one in script.training
        for other in one.command.conditions
    )


def _consumed(script: BatchScript, parts: Parts, account: Account) -> dict[str, tuple[Where, str]]:
    """Return the variables that the training's line is made of, directly and through others, and what has them."""
    apart = {what: {name for one in words for name in names_in(one.source)} for what, words in account.apart.items()}
    read = [*([] if parts.launch is None else [parts.launch]), *(one for one in parts.before if one.role is Role.CALL)]
    others = set[str]().union(*(names_in(one.text) for one in read)).difference(*apart.values())
    found = {name: what for what, names in apart.items() for name in _made_of(script, names)}
    return found | dict.fromkeys(_made_of(script, others), IN_COMMAND)


def _made_of(script: BatchScript, names: set[str]) -> set[str]:
    """Return variables, and those that their values are made of."""
    names = set(names)
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        for one in script.assignments:
            if one.name == name:
                further = names_in(one.text.partition("=")[2]) - names
                names |= further
                waiting.extend(further)
    return names


_NOT_GIVEN = "jobs get no variables of the shell that submits them"


def _log_in(
    script: BatchScript,
    launch: LaunchedProgram,
    needs: Needs,
    lines: list[tuple[str, str]],
    keys: Keys,
    account: Account,
) -> None:
    """Let a login shell set what the file takes from the shell that submits it: variables of the site, conda."""
    text = "\n".join(text for text, _ in lines)
    env = keys.job.get("env")
    given = {one.name for one in script.assignments} | set(env if isinstance(env, dict) else ()) | set(PLACE_VARIABLES)
    given |= set(re.findall(r"\bfor\s+(\w+)\s+in\b", text))
    given |= {name for names in re.findall(r"^export ([\w ]+)$", text, re.MULTILINE) for name in names.split()}
    outside = sorted(
        name
        for name in (needs.prologue & names_in(text)) | needs.command
        if name not in given and may_be_unset(name) and not re.search(rf"\$\{{{name}:?[-=]", text)
    )
    sets_up = "a login shell sets it up"
    of_site = ", ".join(f"${name}" for name in outside if name.isupper())
    if of_nobody := ", ".join(f"${name}" for name in outside if not name.isupper()):
        account.note(Where.LOST, launch.place, of_nobody, f"nothing in the file sets it, and {_NOT_GIVEN}")
    conda = re.search(r"\b(?:conda|mamba) activate\b", text)
    own = re.search(r"(?:conda|mamba)\.sh|shell\.bash|hook|module load \S*(?:conda|mamba|forge)", text)
    for holds, line, shown, what in (
        (re.match(r"#!.*\s-\w*l", script.lines[0]), 1, script.lines[0], sets_up),
        (_in_login_shell(launch), launch.place, "bash -l", sets_up),
        (of_site, launch.place, of_site, f"a login shell may set it: {_NOT_GIVEN}"),
        (conda and not own, launch.place, "conda activate", sets_up),
    ):
        if holds:
            keys.cluster["login_environment"] = True
            account.note(Where.CLUSTER, line, shown, f"login_environment: {what}")


def _note_unset(script: BatchScript, account: Account) -> None:
    """Say which variables only the shell that submits the file may have set: where the file has a default or a test."""
    given = {one.name for one in script.assignments if not re.search(rf"\$\{{?{one.name}\b", one.text)}
    found: dict[str, int] = {}
    for at, line in enumerate(script.lines, 1):
        given |= set(re.findall(r"\bfor\s+(\w+)\s+in\b", line))
        for names in _MAY_BE_SET.findall("" if line.lstrip().startswith("#") else line):
            found.setdefault(names[0] or names[1], at)
    names = [name for name in found if name not in given and may_be_unset(name)]
    if names:
        what = f"{_NOT_GIVEN}: each is taken for unset, or has its default; write another value into the file"
        account.note(Where.LOST, found[names[0]], ", ".join(f"${name}" for name in names), what)


_MAY_BE_SET = re.compile(r"\$\{(\w+):?[-=?]|\[\s+(?:!\s+)?-[nzv]\s+[\"']?\$?\{?(\w+)")


def _in_login_shell(launch: LaunchedProgram) -> bool:
    """Return whether a shell around a launch is a login shell, as that of `bash -lc`."""
    while launch.outer is not None:
        launch = launch.outer
        options = itertools.takewhile(lambda word: word.text.startswith("-"), launch.program[1:])
        if launch.name in SHELLS and any(re.fullmatch(r"-\w*l\w*|--login", word.text) for word in options):
            return True
    return False


def _is_relative(around: Surroundings, one: Statement) -> bool:
    """Return whether it may matter in which folder a statement runs."""
    commands = around.expanded(one)
    paths = [path.written for two in commands for _, path in two.writes_to]
    paths += [two.words[-1].source for two in commands if two.name in ("source", ".")]
    is_anywhere = all(two.name in ("source", ".") or _ANYWHERE.fullmatch(two.name) for two in commands)
    return not is_anywhere or not all(map(_ABSOLUTE.match, paths)) or _HERE.search(one.text) is not None


def _comment(part: Statement) -> str:
    return "\n".join([*part.above, *([part.beside] if part.beside else [])])


def _without_secret(one: Statement, decision: Decision) -> str:
    """Return the first line of a statement for the account, without a secret's value."""
    text = one.text.split("\n")[0]
    filled = re.match(r"printf\s+-v\s+\w+", text)
    if decision.is_secret and filled is not None:
        return f"{filled[0]} …"
    if decision.is_secret or any(
        is_secret_variable(two.name) or holds_secret(two.value.text) for two in one.assignments
    ):
        return re.sub(r"(?s)\A([^\s=]*(?:\s+[A-Za-z_]\w*(?==))?).*", r"\1…", text)
    return text
