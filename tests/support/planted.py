"""Faults that tests plant into copies of the code: a text that stands there once, and what stands in its place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A fault of a module of trainjob. `tests/unit/test_planted_faults.py` holds its text to the code."""

    file: str
    text: str
    instead: str

    def program(self, package: str) -> str:
        """Return a program of Python that plants the fault into the copy of trainjob in the folder `package`."""
        return (
            f"import pathlib; module = pathlib.Path({package!r}, {self.file!r}); text = module.read_text(); "
            f"assert text.count({self.text!r}) == 1; module.write_text(text.replace({self.text!r}, {self.instead!r}))"
        )


# Two instances end an update with gradients that are not those of one.
WRONG_SUMS = Fault("train/engines/ddp.py", "autograd.backward([loss, (", "autograd.backward([1.001 * loss, (")
