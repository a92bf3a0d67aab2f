"""Whatever a batch file says, the files that adopt writes say what it means, to every reader of YAML."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from batchfiles.adoption.adopt import Adoption, adoption_of
from batchfiles.adoption.start import AdoptionError
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import script_of
from tests.batchfiles.unit.test_adoption import ONE_GPU, adopted, prologue
from tests.support.cases import each
from trainjob.cluster.reading import job_from_text
from trainjob.cluster.writing import UnwritableError, comment, item, read_back, scalar
from trainjob.contract.errors import UserError

# What some reader of YAML, or a shell, takes for the end of a line; and marks that turn what is seen around.
ENDS = ("\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\u202e", "\u2066")
STEP = 'once: {job: [{shell: "touch /tmp/x"}]}'
PLACES = {
    "comment of a variable": "export Z=1  # n{end}{step}\npython train.py\n",
    "comment of a statement": "# n{end}{step}\nmodule load cuda\npython train.py\n",
    "comment beside a statement": "module load cuda  # n{end}{step}\npython train.py\n",
    "comment of the command": "# n{end}{step}\npython train.py\n",
    "argument": "python train.py 'a{end}{step}'\n",
    "argument of a shell": "python train.py \"$X\" 'a{end}{step}'\n",
    "variable": "export Z='1{end}{step}'\npython train.py\n",
    "statement": "mkdir 'a{end}{step}'\npython train.py\n",
    "here-document": "cat > x <<EOF\na{end}{step}\n{step}\nEOF\npython train.py x\n",
    "directive": "#SBATCH --comment='a{end}{step}'\npython train.py\n",
    "name": "#SBATCH --job-name='a{end}{step}'\npython train.py\n",
}


def keys(text: str) -> set[str]:
    """Return the keys at the top as the most willing reader finds them: one that ends lines at every sign."""
    return {found[1] for line in text.splitlines() if (found := re.match(r"(\w+):", line))}


def hides_something(adoption: Adoption) -> bool:
    """Return whether a file has signs that nobody sees, or keys that only some readers find."""
    texts = (adoption.job, str(adoption.cluster))
    are_plain = all(text.replace("\n", "").replace("\t", "").isprintable() for text in texts)
    return not are_plain or any(keys(text) != set(yaml.safe_load(text)) or "once" in keys(text) for text in texts)


@each("end", ENDS)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_no_sign_of_a_file_ends_a_line_of_ours(place: str, end: str, tmp_path: Path) -> None:
    try:
        adoption = adopted(ONE_GPU + place.format(end=end, step=STEP), tmp_path)
    except (AdoptionError, UserError):
        return  # nothing is written
    assert not hides_something(adoption)


@each("end", [*ENDS, "\r", "\n"])
def test_no_sign_of_an_argument_or_a_name_ends_a_line_of_ours(end: str) -> None:
    path, text = Path(f"a{end}{STEP}.sbatch"), ONE_GPU + 'python train.py "$@" $X\n'
    adoption = adoption_of(script_of(path, text.encode(), SiteFacts(), (f"b{end}{STEP}",)), Path("/project"))
    assert not hides_something(adoption)
    assert end in job_from_text(adoption.job, "job.yaml").command[2]


def test_a_carriage_return_within_a_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.sbatch"
    path.write_bytes(f"{ONE_GPU}export Z=1  # n\r{STEP}\npython train.py\n".encode())
    with pytest.raises(AdoptionError, match=r"train\.sbatch:4 has a carriage return"):
        adoption_of(script_of(path, path.read_bytes(), SiteFacts(), ()), tmp_path)


@pytest.mark.parametrize("quoted", ["'a; exec b'", "'a  # b; exec c'", '"$(echo "a  b" c)"'])
def test_the_words_of_a_command_stay_as_they_are(quoted: str, tmp_path: Path) -> None:
    adoption = adopted(
        ONE_GPU + f'python train.py {quoted} --out "$SCRATCH/x" {"--long-option value " * 9}\n', tmp_path
    )
    assert quoted in job_from_text(adoption.job, "job.yaml").command[2]


TEXTS = st.text(st.sampled_from(["a", " ", "\n", "\t", "#", ":", "-", "'", '"', "\\", "{", "é", "\r", *ENDS, "\0", "\xa0", "\U0001f600"]), max_size=12)  # fmt: skip


@given(TEXTS, TEXTS, TEXTS)
def test_what_is_written_is_read_back(value: str, block: str, output: str) -> None:
    lines = [*comment(output), f"a: [{scalar(value)}]", f"b: {scalar(value, in_line=False)}", "c:", *item(block)]
    meant = {"a": [value], "b": value, "c": [block]}
    assert yaml.safe_load(read_back(lines, meant)) == meant


def test_what_would_say_something_else_is_refused() -> None:
    for line in ("a: 1\u2028b: 2", "a: 1  # \x85b: 2", "a: [", "a: 2", 'a: "1"', "a: 1\nb: 1"):
        with pytest.raises(UnwritableError, match="can't be written as YAML"):
            read_back([line], {"a": 1})


def test_a_file_that_we_would_not_read_is_not_written(tmp_path: Path) -> None:
    chain = "".join(f"export A{number}=$A{number - 1}$A{number - 1}\n" for number in range(1, 40))
    with pytest.raises(UnwritableError, match="more than the 256 kB"):
        adopted(ONE_GPU + f"A0=xxxx\n{chain}python train.py\n", tmp_path)


def test_a_cluster_file_says_what_the_batch_file_does(tmp_path: Path) -> None:
    adoption = adopted(ONE_GPU + "mkdir 'a\u2028b'\npython train.py\n", tmp_path)
    assert prologue(adoption)[-1] == "mkdir 'a\u2028b'"
