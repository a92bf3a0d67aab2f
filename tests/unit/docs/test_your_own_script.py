"""The lines that the page about scripts shows are lines of scripts that `benchmarks/resume_faults.py` proves."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.cases import each

TOP = Path(__file__).parents[3]
BLOCKS = re.findall(r"```python\n(.*?)```", (TOP / "docs" / "your-own-script.md").read_text(), re.DOTALL)


def without_indentation(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


@each("block", BLOCKS)
def test_every_block_is_part_of_a_script_that_resumes(block: str) -> None:
    scripts = (TOP / "benchmarks" / "resume_scripts").glob("*.py")
    assert any(without_indentation(block) in without_indentation(script.read_text()) for script in scripts)
