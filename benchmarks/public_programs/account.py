"""What each program keeps account of: its updates, how many are planned, and every loss that it prints."""

from __future__ import annotations

import json
import os
import random
import sys
from collections import UserDict
from collections.abc import Mapping
from typing import Any

# No plain dictionary: a program's own variables are searched for its epochs.
truth: UserDict[str, Any] = UserDict({"updates": 0, "total": None, "training": [], "held_out": []})


def shown(value: float, form: str = "%.4f", of: str = "training") -> str:
    """Return a loss as it is printed, and keep it."""
    truth[of].append(float(form % value))
    return form % value


def judge_accuracies() -> None:
    """Have accuracies judged as well, which programs of earlier draws did not keep."""
    truth.update(training_accuracy=[], held_out_accuracy=[])


def run(programs: Mapping[str, Any]) -> None:
    """Run the program that the command line names, and write its account to the file that TRUTH names."""
    random.seed(0)
    programs[sys.argv[1]]()
    with open(os.environ["TRUTH"], "w") as stream:
        json.dump(truth.data, stream)
