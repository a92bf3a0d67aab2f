"""trainjob adopt: turns a batch file into a job file and a cluster file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchfiles.commands.doctor import refuse_unreadable, slurm_cluster
from batchfiles.commands.rehearse import mapped_folder
from trainjob.cli.command import AsJson, cluster_option, command, commands, fail_unless
from trainjob.contract.errors import UserError
from trainjob.watch import show

if TYPE_CHECKING:
    from batchfiles.adoption.account import Entry
    from batchfiles.adoption.adopt import Adoption
    from batchfiles.rehearsal.proof import Proof

app = commands()


@command(
    app, "trainjob adopt train.sbatch -o adopted", "trainjob adopt --cluster hpc train.sbatch -o adopted config.yaml"
)
def adopt(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A batch file for Slurm.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ARGUMENT…]",
            help="Its arguments, as for sbatch; before them options of sbatch's, as in -- --nodes=2 config.yaml.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder for the files. Absent: print them.")
    ] = None,
    prove: Annotated[
        bool,
        typer.Option("--prove", help="Run both on a private Slurm on this machine, and compare what their ranks see."),
    ] = False,
    to_the_end: Annotated[
        bool,
        typer.Option(
            "--to-the-end",
            help="With --prove: run both again, interrupt each once by its time limit, and compare their ends.",
        ),
    ] = False,
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="FOLDER=HERE", help="With --prove: a folder of the cluster, and the one here for it."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --prove: run a file that another user has written.")] = False,
    cluster: Annotated[str | None, cluster_option("Use this cluster file, and write only a job file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Turn a batch file for Slurm into a job file and a cluster file that do the same, and account for each line."""
    from batchfiles.adoption.adopt import CLUSTER_FILE, JOB_FILE
    from batchfiles.adoption.adopt import adopt as adopted
    from trainjob.backends import project as projects

    if to_the_end and not prove:
        raise typer.BadParameter("--to-the-end goes with --prove: it follows both to their ends")
    refuse_unreadable(file)
    raw = b""
    if prove:
        from batchfiles.commands.trust import agree_to_run

        raw = agree_to_run(file, yes=yes)
    known = None if cluster is None else slurm_cluster(cluster)
    options, own = _of_sbatch(arguments or ())
    mapped = dict(mapped_folder(text) for text in maps or ())
    _refuse_what_bash_refuses(file)
    adoption = adopted(file, Path.cwd(), own, known, projects.find(Path.cwd()).start, options)
    texts = {JOB_FILE: adoption.job, **({} if adoption.cluster is None else {CLUSTER_FILE: adoption.cluster})}
    _refuse_unplannable(file, texts, cluster)
    paths = {} if output is None else _write(output, texts)
    proof = None
    if prove:
        from batchfiles.rehearsal.proving import prove as proved

        say = (lambda _line: None) if as_json else lambda line: typer.echo(line, err=True)
        with _in_files(texts, cluster) as (job, name):
            proof = proved(file, raw, own, job, name, say, options=options, maps=mapped, to_the_end=to_the_end)
    is_proved = proof is None or not proof.unexplained(adoption.explained)
    if as_json:
        files = {"files": {name: str(path) for name, path in paths.items()} or texts}
        show.as_json(
            adoption.as_json() | files | ({} if proof is None else {"proof": proof.as_json(adoption.explained)})
        )
        fail_unless(is_proved)
        return
    for name, text in texts.items() if output is None else ():
        typer.echo(f"--- {name} ---\n{text}")
    _tell(adoption, file)
    if proof is not None:
        _tell_proof(proof, adoption)
    if output is not None:
        typer.echo(f"wrote {' and '.join(str(path) for path in paths.values())}")
        used = cluster or os.path.join(".", paths[CLUSTER_FILE])
        typer.echo(f"then: trainjob plan --cluster {used} --job {paths[JOB_FILE]}")
    fail_unless(is_proved)


def _refuse_what_bash_refuses(file: Path) -> None:
    """Raise UserError for a file whose grammar is wrong: what stands below the fault never runs."""
    from batchfiles.rules.codes import Severity
    from batchfiles.rules.diagnosis import asked_bash
    from batchfiles.slurm.request import SiteFacts
    from batchfiles.slurm.script import read_script

    for fault in asked_bash(read_script(file, SiteFacts())):
        if fault.severity is Severity.ERROR:
            raise UserError(f"{file}:{fault.line} is no bash: {fault.text}", "mend it first: trainjob doctor names it")


def _refuse_unplannable(file: Path, texts: dict[str, str], cluster: str | None) -> None:
    """Raise UserError if what was adopted can't be planned and rendered: it would be refused when it is submitted."""
    from trainjob.requests.options import JobOptions
    from trainjob.requests.prepared import prepare

    with _in_files(texts, cluster) as (job, known):
        try:
            prepare(JobOptions(known, job, {})).render()
        except UserError as error:
            raise UserError(f"{file} can't be adopted: the job would be refused. {error.text}", error.cure) from error


@contextmanager
def _in_files(texts: dict[str, str], cluster: str | None) -> Iterator[tuple[Path, str]]:
    """Write what was adopted into a temporary folder; yield its job file, and `cluster` or its cluster file."""
    import tempfile

    from batchfiles.adoption.adopt import CLUSTER_FILE, JOB_FILE

    with tempfile.TemporaryDirectory(prefix="trainjob-adopt-") as place:
        for name, text in texts.items():
            (Path(place) / name).write_text(text, encoding="utf-8")
        yield Path(place) / JOB_FILE, str(Path(place) / CLUSTER_FILE) if cluster is None else cluster


def _of_sbatch(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the leading words that are options of sbatch with a value, and the file's own arguments."""
    from trainjob.contract.programs.slurm_options import OPTIONS

    def is_option(word: str) -> bool:
        name, equals, _ = word.partition("=")
        row = OPTIONS.get(name.removeprefix("--"))
        return word.startswith("--") and bool(equals) and row is not None and row.of in ("sbatch", "both")

    count = next((at for at, word in enumerate(words) if not is_option(word)), len(words))
    return tuple(words[:count]), tuple(words[count:])


def _tell_proof(proof: Proof, adoption: Adoption) -> None:
    if proof.is_equal:
        ranks = "1 rank" if len(proof.adopted) == 1 else f"{len(proof.adopted)} ranks"
        typer.echo(f"Proved: both start {ranks}, which see the same: {proof.compared}")
        if proof.ends is not None:
            typer.echo(
                f"Interrupted by their time limit, both are {proof.ends[0].in_words}, and have written the same files"
            )
        typer.echo()
        return
    unexplained = proof.unexplained(adoption.explained)
    for one in unexplained:
        typer.echo(f"NOT the same: {one.text}")
    rest = [one for one in proof.differences() if one not in unexplained]
    if rest:
        typer.echo("Not the same, as the file is wrong:")
    for one in rest:
        typer.echo(f"  {one.text} ({', '.join(adoption.explained[one.aspect])})")
    typer.echo()


def _write(folder: Path, texts: dict[str, str]) -> dict[str, Path]:
    from trainjob.kinds.lookup import write_draft

    paths = {name: folder / name for name in texts}
    for path in paths.values():
        if path.exists():
            raise UserError(f"{path} exists already, and is not overwritten", "choose another folder, or remove it")
    for name, path in paths.items():
        write_draft(path, texts[name])
    return paths


def _tell(adoption: Adoption, file: Path) -> None:
    from batchfiles.adoption.account import Where

    rows = [
        (one.lines, _short(one), f"{one.where.value}: {one.what}")
        for one in adoption.account.sorted
        if one.where is not Where.LOST
    ]
    show.table(("LINE", file.name, "BECAME"), rows)
    by_script = "if the script goes on from its checkpoints (trainjob verify --resume)"
    for title, lines in {
        "Not carried over": [f"{one.lines}: {_short(one)}: {one.what}" for one in adoption.account.lost],
        "Different, because the file is wrong": adoption.account.changes,
        "Found by doctor, and cured": [", ".join(adoption.cured_at_once)],
        f"Found by doctor, and cured {by_script}": [", ".join(adoption.cured_with_script)],
    }.items():
        if any(lines):
            typer.echo("\n  ".join([f"\n{title}:", *lines]))
    typer.echo()


def _short(one: Entry) -> str:
    """Return the text of an entry: all of it, unless it is a whole statement or directive, which the file has."""
    is_part = one.span is None and not one.text.startswith("#SBATCH")
    return one.text if is_part or len(one.text) <= 60 else f"{one.text[:59]}…"
