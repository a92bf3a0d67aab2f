"""The hours of --budget."""

from __future__ import annotations

import pytest
import typer

from trainjob.cli.command import hours


@pytest.mark.parametrize("text", ["2gpu-hours", "2device-hours", "2"])
def test_hours_have_a_unit_or_none(text: str) -> None:
    assert hours(text, "gpu", "device") == 2.0


@pytest.mark.parametrize("text", ["nangpu-hours", "inf", "-1gpu-hours", "2node-hours", "many"])
def test_what_is_no_number_of_hours_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        hours(text, "gpu", "device")
    assert str(refused.value) == f"--budget {text}: expected hours, as in 2gpu-hours"
