"""The prepared run for a real GPU: its programs exist, and its table says of each row whether it agrees."""

from __future__ import annotations

from benchmarks.gpu.measure import PROGRAMS, GpuRow, ProgramEnd, program_verdict, table
from tests.standins.gpu.test_programs import COMMANDS
from tests.standins.gpu.test_programs import PROGRAMS as FOLDER
from tests.support.cases import each


def test_eight_programs_of_the_stand_ins_are_run() -> None:
    assert len(set(PROGRAMS)) == 8
    for name in PROGRAMS:
        (script,) = (word for word in COMMANDS[name][0] if word.endswith(".py"))
        assert (FOLDER / script).is_file()


def test_the_table_has_the_device_and_a_verdict_for_each_row() -> None:
    text = table(
        [GpuRow("nanoGPT", "3.1 s", "7.2 s"), GpuRow("usage", "ValueError: x", verdict="FAILED")], "NVIDIA H100"
    )
    assert text.splitlines()[1].startswith("NVIDIA H100 · torch ")
    assert "| nanoGPT | 3.1 s | 7.2 s | ok |\n| usage | ValueError: x |  | FAILED |\n" in text


def ended(code: int, output: str = "step 9 loss 0.51\ndone") -> ProgramEnd:
    return ProgramEnd(code, output, 1.0, "done")


@each(
    ("here", "beside", "verdict"),
    [
        (ended(0), ended(0), "ok"),
        (ended(0), ended(0, "loss: 0.52\ndone"), "ok"),
        (ended(0), ended(0, "loss=0.81\ndone"), "DIFFERS"),
        (ended(0), ended(0, "loss 0.51"), "DIFFERS"),  # without the words of one that is right
        (ended(0), ended(1), "DIFFERS"),
        (ended(0), ended(124), "not compared"),
        (ended(1), ended(0), "FAILED"),
        (ended(0, "nothing"), ended(0), "FAILED"),
        (ended(124), ended(0), "not compared"),
    ],
)
def test_a_program_is_ok_only_where_both_sides_ended_well_and_alike(
    here: ProgramEnd, beside: ProgramEnd, verdict: str
) -> None:
    assert program_verdict(here, beside) == verdict
