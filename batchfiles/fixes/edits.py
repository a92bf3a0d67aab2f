"""One edit a code: a function that takes the script and a fault of it, and returns the new text, or None.

SAFE edits do what the author wrote, where bash or Slurm read something else; UNSAFE ones change what a file does.
"""

from __future__ import annotations

from batchfiles.fixes import directives, launches, meeting, shell, time_limit, worlds
from batchfiles.fixes.lines import Edit

SAFE: dict[str, Edit] = {**shell.SAFE, **directives.SAFE, **launches.SAFE, **meeting.SAFE, **worlds.SAFE}
UNSAFE: dict[str, Edit] = {
    **shell.UNSAFE,
    **directives.UNSAFE,
    **launches.UNSAFE,
    **meeting.UNSAFE,
    **worlds.UNSAFE,
    "time-limit-unhandled": time_limit.with_recipe,
    "signal-kills-batch": time_limit.to_steps,
    "signal-never-arrives": time_limit.to_batch_shell,
    "requeue-without-signal": time_limit.with_recipe,
    "trap-deferred": time_limit.in_background,
}
