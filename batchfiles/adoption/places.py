"""Folders of a batch file, and what Slurm tells it, as its job has them: a run directory with a copy of the project."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from batchfiles.adoption.parts import Parts
from batchfiles.bash.expansion import text_of
from batchfiles.bash.shell import parse
from batchfiles.slurm.script import BatchScript, nodes_of

_OWN_FOLDER = re.compile(
    r'\$\(dirname\s+(?:--\s+)?"?(?:\$\((?:readlink\s+-f|realpath)\s+)?"?\$\{?(?:0|BASH_SOURCE(?:\[0\])?)\}?"?\)?"?\)'
)
# Jobs have only what Slurm tells every job.
_OTHERS_OF_SLURM = re.compile(r"SLURM_(?:JOB_ACCOUNT|JOB_QOS|GPUS\w*|NTASKS_PER_\w+)")
_WITH_DEFAULT = re.compile(r"\$\{(\w+)(?::?[-=?].*)?\}", re.DOTALL)


@dataclass(frozen=True)
class PathOrigin:
    """The folder of relative paths: `base` where the file is submitted, `copy` in the job's shell."""

    base: str
    copy: str
    of_file: str  # the folder of the batch file, in the job's shell
    slurm: Mapping[str, str] = field(
        default_factory=dict
    )  # variables that Slurm would set, and that a job does not have

    def in_copy(self, text: str) -> str:
        """Return a text of shell for the job: paths below the folder of the submission are in the copy."""
        text = _OWN_FOLDER.sub(lambda _match: self.of_file, text)
        # The copy of a project has no virtualenv.
        text = re.sub(r"((?:source|\.)\s+)(?:\./)?([\w.][\w./-]*/activate)\b", rf"\1{self.base}/\2", text)
        text = re.sub(r"\b((?:conda|mamba|micromamba)\s+activate\s+)\./", rf"\1{self.base}/", text)
        known = {"SLURM_SUBMIT_DIR": self.copy, **self.slurm}
        root = parse(text)
        raw = root.text or b""
        for node in reversed(list(nodes_of(root, "simple_expansion", "expansion"))):
            whole = text_of(node).strip()
            match = _WITH_DEFAULT.fullmatch(whole)
            value = known.get(match[1] if match is not None else whole[1:])
            if value is not None:
                start = node.end_byte - len(whole.encode())
                raw = raw[:start] + value.encode() + raw[node.end_byte :]
        text = raw.decode(errors="replace")
        # Other forms, as ${NAME%/}, and texts for another shell.
        left = [name for name in known if re.search(rf"\b{name}\b", text)]
        return "".join(f'{name}="{known[name]}"\n' for name in left) + text


def place_of(script: BatchScript, parts: Parts, folder: Path, start: str) -> PathOrigin:
    """Return the place of a file that is submitted in `folder`, which is `start` below the top of its project."""
    base = str(folder)
    for one in (command for part in parts.before for command in part.commands):
        if one.name == "cd" and len(one.words) > 1 and one.words[1].value.known and one.words[1].text.startswith("/"):
            base = one.words[1].text.rstrip("/")
    copy = "$TRAINJOB_RUN_DIR/code/project" + ("" if start == "." else f"/{start}")
    below = os.path.relpath(script.path.parent.resolve(), folder.resolve())
    given = {"SLURM_JOB_ACCOUNT": script.header.value("account"), "SLURM_JOB_QOS": script.header.value("qos")}
    given |= {name: value for name, value in script.request.slurm_variables.items() if _OTHERS_OF_SLURM.fullmatch(name)}
    known = {name: value for name, value in given.items() if value}
    return PathOrigin(base, copy, copy if below.startswith(".") else f"{copy}/{below}", known)
