"""A user who is not root and may not use sudo, on a machine where user namespaces are allowed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import trainjob
from tests.support.programs import TRAINJOB

ID = 4321
_SCRIPT = Path(__file__).with_name("ordinary_user.sh")
_CHECKOUT = Path(trainjob.__file__).parent.parent


@dataclass(frozen=True)
class OrdinaryUser:
    """Has a home, and a project in it that is the working folder."""

    home: Path
    has_subordinate_ids: bool = True

    def run(self, *words: str, code: int = 0) -> str:
        """Return what `trainjob WORDS` printed, errors too."""
        # mount and unshare may lie in sbin, which a login shell of Debian's has on its PATH for root only.
        path = f"{Path(TRAINJOB).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        environ = {"HOME": str(self.home), "USER": "somebody", "LANG": "C.UTF-8", "PATH": path}
        needed = (str(Path(sys.base_prefix)), str(_CHECKOUT))
        has_ids = "yes" if self.has_subordinate_ids else "no"
        ended = subprocess.run(
            ["unshare", "--mount", "sh", _SCRIPT, self.home, has_ids, *needed, "--", TRAINJOB, *words],
            cwd=self.home / "project",
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
        assert ended.returncode == code, ended.stdout
        return ended.stdout


@contextmanager
def ordinary_user(*, has_subordinate_ids: bool = True) -> Iterator[OrdinaryUser]:
    """Yield the user; the home is gone afterwards."""
    # Not below pytest's folder, which is root's alone.
    with TemporaryDirectory(prefix="trainjob-home-", dir="/tmp") as name:
        home = Path(name)
        (home / "project").mkdir()
        subprocess.run(["chown", "--recursive", f"{ID}:{ID}", home], check=True)
        yield OrdinaryUser(home, has_subordinate_ids)
