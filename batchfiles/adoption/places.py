"""Folders of a batch file, and what Slurm tells it, as its job has them: a run directory with a copy of the project."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from batchfiles.adoption.account import Account, Where
from batchfiles.adoption.parts import Parts, Role
from batchfiles.bash.commands import ShellCommand
from batchfiles.bash.expansion import Word, text_of_expansion
from batchfiles.bash.shell import parse
from batchfiles.slurm.script import BatchScript, nodes_of

_OWN_FOLDER = re.compile(
    r'\$\(dirname\s+(?:--\s+)?"?(?:\$\((?:readlink\s+-f|realpath)\s+)?"?\$\{?(?:0|BASH_SOURCE(?:\[0\])?)\}?"?\)?"?\)'
)
# Jobs have only what Slurm tells every job.
_OTHERS_OF_SLURM = re.compile(r"SLURM_(?:JOB_ACCOUNT|JOB_QOS|GPUS\w*|NTASKS_PER_\w+)")
_WITH_DEFAULT = re.compile(r"\$\{(\w+)(?::?[-=?].*)?\}", re.DOTALL)


def with_lines(words: list[str], lines: list[str]) -> list[str]:
    """Return a command that runs lines of shell before it."""
    text = words[2] if words[:2] == ["bash", "-c"] and len(words) == 3 else f"exec {shlex.join(words)}"
    return ["bash", "-c", "\n".join((*lines, text))]


@dataclass(frozen=True)
class PathOrigin:
    """The folder of relative paths: `base` where the file is submitted, `copy` in the job's shell."""

    base: str
    copy: str
    of_file: str  # the folder of the batch file, in the job's shell
    name: str  # of the batch file
    # Variables that Slurm would set, and that a job does not have.
    slurm: Mapping[str, str] = field(default_factory=dict)
    # The folders inside of that one, or on the node's own disk, to which statements move, by the bytes of these.
    moves: dict[tuple[int, int], str] = field(default_factory=dict)
    depth: int = 0  # of that folder in its project
    made: tuple[str, ...] = ()  # virtualenvs that the file itself makes, in its project

    @property
    def training_folder(self) -> str:
        """The folder, relative to `base`, in which the file starts its training."""
        return next(reversed(self.moves.values()), "") or "."

    def is_outside(self, path: str, at: int) -> bool:
        """Return whether a path leads out of the project, from where the file is at this byte; no absolute one does."""
        inside = os.path.normpath(os.path.join(self._folder_at(at), path))
        return not _is_on_node(inside) and inside.split("/").count("..") > self.depth

    def _folder_at(self, at: int) -> str:
        return next((inside for span, inside in reversed(self.moves.items()) if span[0] < at), "") or "."

    def note_outside(self, text: str, line: int, at: int, account: Account) -> None:
        """Say which paths of a text at this byte of the file are outside of its project."""
        for path in (path for path in _UPWARDS.findall(text) if self.is_outside(path, at)):
            account.note(Where.LOST, line, path, "it is outside of the project: no copy has it")

    def move_of_command(self, *, ends: bool) -> list[str]:
        """Return the move that leads to where the file starts its training; none if that is where ranks start.

        `ends`: the file ends where it can't move. What was to run on a node's disk never runs in the project.
        """
        inside = self.training_folder
        return [] if inside == "." else [self.move(inside) + (" || exit" if ends or _is_on_node(inside) else "")]

    def move(self, inside: str) -> str:
        """Return what moves a shell of the job to a folder of the copy, or of the node's own disk."""
        return f'cd "{self._in_job(inside, self.copy)}"'

    @staticmethod
    def _in_job(inside: str, top: str) -> str:
        return inside if _is_on_node(inside) else top if inside in ("", ".") else f"{top}/{inside}"

    def from_folder(self, words: list[str], at: int) -> list[str]:
        """Return a command that runs in the folder in which the file starts it, at this byte."""
        inside = self._folder_at(at)
        return words if inside == "." else with_lines(words, [self.move(inside)])

    def in_copy(self, text: str, at: int = 0) -> str:
        """Return a text of shell for the job: paths below the folder of the submission are in the copy.

        `at` is the byte of the file at which it stands, which may be behind a move.
        """
        text = _OWN_FOLDER.sub(lambda _match: self.of_file, text)
        inside = self._folder_at(at)
        if not _is_on_node(inside):  # the copy of a project has no virtualenv
            base = self._in_job(inside, self.base)
            made = "".join(rf"(?!{re.escape(name)}/)" for name in self.made)
            text = re.sub(rf"((?:source|\.)\s+)(?:\./)?{made}([\w.][\w./-]*/activate)\b", rf"\1{base}/\2", text)
            text = re.sub(r"\b((?:conda|mamba|micromamba)\s+activate\s+)\./", rf"\1{base}/", text)
        known = {"SLURM_SUBMIT_DIR": self.copy, "0": f"{self.of_file}/{self.name}", **self.slurm}
        root = parse(text)
        raw = root.text or b""
        for node in reversed(list(nodes_of(root, "simple_expansion", "expansion"))):
            whole = text_of_expansion(node)
            match = _WITH_DEFAULT.fullmatch(whole)
            value = known.get(match[1] if match is not None else whole[1:])
            if value is not None:
                start = node.end_byte - len(whole.encode())
                raw = raw[:start] + value.encode() + raw[node.end_byte :]
        text = raw.decode(errors="replace")
        # Other forms, as ${NAME%/}, and texts for another shell.
        left = [name for name in known if name.isidentifier() and re.search(rf"\b{name}\b", text)]
        return "".join(f'{name}="{known[name]}"\n' for name in left) + text


def place_of(script: BatchScript, parts: Parts, folder: Path, start: str) -> PathOrigin:
    """Return the place of a file that is submitted in `folder`, which is `start` below the top of its project."""
    targets = [script.header.value("chdir") or ""]
    for one in (command for part in parts.before for command in part.commands):
        targets += [word.text for word in one.words[1:2] if one.name == "cd" and word.value.known]
    base = next(
        (target.rstrip("/") for target in reversed(targets) if target[:1] == "/" and not _is_on_node(target)),
        str(folder),
    )
    copy = "$TRAINJOB_RUN_DIR/code/project" + ("" if start == "." else f"/{start}")
    depth = len(Path(start).parts)
    moves = _Moves(folder, depth).of(parts)
    below = os.path.relpath(script.path.parent.resolve(), folder.resolve())
    given = {"SLURM_JOB_ACCOUNT": script.header.value("account"), "SLURM_JOB_QOS": script.header.value("qos")}
    given |= {name: value for name, value in script.request.slurm_variables.items() if _OTHERS_OF_SLURM.fullmatch(name)}
    known = {name: value for name, value in given.items() if value}
    of_file = copy if below.startswith(".") else f"{copy}/{below}"
    made = tuple({re.sub(r"^\./|/$", "", one.words[-1].text) for one in script.commands if makes_environment(one)})
    return PathOrigin(base, copy, of_file, script.path.name, known, moves, depth, made)


def makes_environment(one: ShellCommand) -> bool:
    """Return whether a command makes a virtualenv in the folder in which it runs, or below it."""
    return _MAKES_ENVIRONMENT.search(one.text) is not None and re.match(r"[\w.]", one.words[-1].source) is not None


_MAKES_ENVIRONMENT = re.compile(
    r"-m venv\s|^(?:\S*/)?virtualenv\s|^uv venv\b|\b(?:conda|mamba) create\b.*\s(?:-p|--prefix)\s"
)


_UPWARDS = re.compile(r"(?:\A|[=:\s\"'])(?:\$\{?(?:PWD|SLURM_SUBMIT_DIR)\}?[\"']?/|\$\(pwd\)/|\./)?(\.\./[^\s,:;\"']*)")
_HERE = re.compile(r'"?(?:\$\{?PWD\}?|\$\(pwd\)|`pwd`)"?((?:/[\w.-]+)*)/?"?')
# Folders on the disk of a node, which a job has as well.
_ON_NODE = r"(?:\w*TMP_?DIR|TMP|\w*JOBFS|L(?:OCAL_?)?SCRATCH\w*|SLURM_\w*(?:TMP|SCRATCH)\w*)"
_BELOW_ON_NODE = re.compile(rf"(?:\${_ON_NODE}|\$\{{{_ON_NODE}:?-[\w./]*\}}|/tmp)(?:/[\w./-]*)?")
_IN_SUBMISSION = re.compile(r'"?\$\{?SLURM_SUBMIT_DIR(?::?[-=?][^}]*)?\}?"?((?:/[\w.-]+)*)/?"?')


def _is_on_node(folder: str) -> bool:
    return _BELOW_ON_NODE.fullmatch(folder) is not None


_OR_ENDS = re.compile(r"cd\s[^;&|]*\|\|\s*(?:exit|return|die|\{)(?![\s\S]*\bcd\s)[\s\S]*")


class _Moves:
    def __init__(self, folder: Path, depth: int) -> None:
        self.folder, self.depth = folder, depth
        self.stack = ["."]

    def of(self, parts: Parts) -> dict[tuple[int, int], str]:
        """Return the moves of a file inside of the folder of its submission; others leave none behind."""
        found: dict[tuple[int, int], str] = {}
        for part in parts.before:
            for one in part.commands:
                if one.name not in ("cd", "pushd", "popd"):
                    continue
                is_plain = part.kind == "command" or _OR_ENDS.fullmatch(part.text) is not None
                move = self._move(one) if is_plain and part.role in (Role.PLAIN, Role.REQUIRED) else None
                if move is not None:
                    found[part.span] = move
                elif _is_on_node(self.stack[-1]):
                    if part.kind == "command":  # back to the project; one that may move or not is none
                        found[part.span], self.stack = "", ["."]
                elif not (one.name == "cd" and len(one.words) > 1 and self._is_submission(one.words[1])):
                    found.clear()
                    self.stack = ["."]
        return found

    def _is_submission(self, target: Word) -> bool:
        return self.stack == ["."] and self._below(target) == "."

    def _below(self, target: Word) -> str | None:
        # The folder relative to that of the submission, if it is in the project.
        written, text = _IN_SUBMISSION.fullmatch(target.source), target.text
        for on_node in (target.source.strip('"'), target.value.written):  # with the default of a variable, or without
            if _is_on_node(on_node):
                return os.path.normpath(on_node)
        if written is not None:
            inside = written[1].lstrip("/") or "."
        elif (here := _HERE.fullmatch(target.source)) is not None:
            inside = os.path.join(self.stack[-1], here[1].lstrip("/"))
        elif not target.value.known or text[:1] in ("", "-", "~"):
            return None
        elif text.startswith("/"):
            inside = os.path.relpath(text, self.folder)
            return None if inside.startswith("..") else inside
        else:
            inside = os.path.join(self.stack[-1], text)
        inside = os.path.normpath(inside)
        if _is_on_node(inside):
            return inside
        return None if inside.split("/").count("..") > self.depth else inside

    def _move(self, one: ShellCommand) -> str | None:
        if one.name == "popd":
            if len(self.stack) == 1:
                return None
            self.stack.pop()
        else:
            inside = self._below(one.words[1]) if len(one.words) == 2 else None
            if inside is None or (inside == "." and self.stack == ["."]):
                return None
            self.stack[(len(self.stack) if one.name == "pushd" else -1) :] = [inside]
        return self.stack[-1]
