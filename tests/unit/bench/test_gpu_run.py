"""The prepared run for a real GPU: its programs exist, and its table says of each row whether it agrees."""

from __future__ import annotations

from benchmarks.gpu.measure import PROGRAMS, GpuRow, table
from tests.standins.gpu.test_programs import COMMANDS
from tests.standins.gpu.test_programs import PROGRAMS as FOLDER


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
