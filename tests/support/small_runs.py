"""The smallest run directories: a script of one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainjob.render.rendered import File, Rendered
from trainjob.submit.folder import FolderError, create

RENDERED = Rendered(files={"job.sh": File(b"echo\n", 0o755), "job.json": File(b"{}\n", 0o644)}, script="job.sh")


def refused(target: Path) -> str:
    with pytest.raises(FolderError) as caught:
        create(target, RENDERED, None, None)
    return str(caught.value)
