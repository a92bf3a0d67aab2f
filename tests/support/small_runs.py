"""The smallest run directories: a script of one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainjob.backends.folder import FolderError, create
from trainjob.render.rendered import File, Rendered

RENDERED = Rendered(files={"job.sh": File(b"echo\n", 0o755), "job.json": File(b"{}\n", 0o644)}, script="job.sh")


def refused(target: Path) -> str:
    with pytest.raises(FolderError) as caught:
        create(target, RENDERED, None, None)
    return str(caught.value)
