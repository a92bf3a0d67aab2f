"""A task whose rank 1 hangs at its 20th loss, as a bug of a user's own makes it."""

from __future__ import annotations

import os
import time
from typing import Any

from trainjob.train.tasks.ffnet_toy import FfnetToy


class Hangs(FfnetToy):
    losses = 0

    def loss(self, outputs: Any, targets: Any) -> Any:
        self.losses += 1
        if self.losses == 20 and os.environ["RANK"] == "1":
            time.sleep(1000)
        return super().loss(outputs, targets)
