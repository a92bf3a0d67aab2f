"""A private Slurm that takes sbatch's --ipus: the option of Graphcore's own plugin, as a plugin that does nothing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from trainjob.contract.errors import UserError
from trainjob.rehearse.slurm import root
from trainjob.submit import process

_SOURCE = Path(__file__).with_name("ipus_option.c")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def settings(place: Path) -> dict[str, str]:
    """Return slurm.conf's settings for the plugin, compiled into `place`. Raises UserError without a compiler."""
    compiler = shutil.which("cc", path=process.search_path())
    if compiler is None:
        raise UserError(
            "the cluster asks for IPUs by sbatch's --ipus, which a stock Slurm takes only with a plugin, and there is "
            "no C compiler here to make one. On Debian or Ubuntu: sudo apt-get install gcc libc6-dev; or rehearse with "
            "request: gres, which asks for the same number"
        )
    plugin, table = place / "ipus.so", place / "plugstack.conf"
    words = [compiler, "-shared", "-fPIC", f"-DSLURM_VERSION={_version()}", "-o", str(plugin), str(_SOURCE)]
    process.run(words)
    table.write_text(f"required {plugin}\n")
    return {"PlugStackConfig": str(table)}


def _version() -> str:
    """Return Slurm's version as its plugins write it: 22.05.8 is 0x160508."""
    found = _VERSION.search(process.run([root.where("slurmd") or "slurmd", "-V"], check=False).text)
    return "0" if found is None else "0x" + "".join(f"{int(number):02x}" for number in found.groups())
