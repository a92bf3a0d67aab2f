"""What nvidia-smi, rocm-smi and gc-monitor print, as launchers and the command line read it."""

from __future__ import annotations

from tests.support.gc_monitor_tables import BOARDS, PROCESSES
from trainjob.contract import device_tools
from trainjob.contract.device_tools import gc_monitor_rows, nvidia_rows, rocm_cards


def test_a_query_names_its_fields_and_rows_have_them() -> None:
    fields = ("index", "power.draw")
    words = ["nvidia-smi", "--query-gpu=index,power.draw", "--format=csv,noheader,nounits"]
    assert device_tools.nvidia_query("gpu", fields) == words
    printed = "0, 310.5\nwarning: infoROM is corrupted\n1, [N/A]\n"
    rows = nvidia_rows(printed, fields)
    assert rows == [{"index": "0", "power.draw": "310.5"}, {"index": "1", "power.draw": "[N/A]"}]
    assert [device_tools.number(row["power.draw"]) for row in rows] == [310.5, None]


def test_rocm_smi_is_read_behind_its_warnings_whatever_the_case_of_its_keys() -> None:
    printed = (
        'WARNING: low-power state\n{"card0": {"Card Series": "MI210", "GPU use (%)": 7}, "system": {"PID12": "a"}}'
    )
    assert rocm_cards(printed) == {"card0": {"card series": "MI210", "gpu use (%)": "7"}, "system": {"pid12": "a"}}
    assert rocm_cards("ERROR: no driver") == rocm_cards('{"card0": ') == {}


def test_rows_of_gc_monitor_go_by_the_headings_above_them() -> None:
    *boards, process = gc_monitor_rows(BOARDS + PROCESSES)
    assert [(row["ID"], row["IPU-M"]) for row in boards] == [("0", "10.1.5.1"), ("1", "10.1.5.1"), ("2", "10.1.5.2")]
    assert (process["PID"], process["ID"], process["Temp"], process["Temp 2"]) == ("4242", "1", "N/A", "25.0 C")
    assert gc_monitor_rows("No attached processes\n") == []
