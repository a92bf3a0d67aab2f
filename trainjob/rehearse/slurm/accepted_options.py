"""Options that a site's plugins add to sbatch and srun: a private Slurm accepts them, and does nothing."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.rehearse.slurm import root

_SOURCE = Path(__file__).with_name("accepted_options.c")


def settings(place: Path, options: Sequence[str], release: str | None, otherwise: str) -> dict[str, str]:
    """Return the lines of slurm.conf for `options`, whose plugin is compiled into `place`.

    An option with a value ends in "=". Raises UserError without a C compiler; `otherwise` is another cure.
    """
    compiler = shutil.which("cc", path=process.search_path())
    if compiler is None:
        names = ", ".join(f"--{option.removesuffix('=')}" for option in options[:3])
        raise UserError(
            f"a stock Slurm accepts {names} only with a plugin, and this machine has no C compiler to build one",
            f"On Debian or Ubuntu: sudo apt-get install gcc libc6-dev; or {otherwise}",
        )
    # Plugins have the version as a number: 22.05.8 is 0x160508. Slurm compares only the release.
    version = f"{release}.0" if release else root.installed_version() or "0"
    number = "0x" + "".join(f"{int(part):02x}" for part in version.split("."))
    plugin, listed = place / "accepted_options.so", place / "plugstack.conf"
    process.run([compiler, "-shared", "-fPIC", f"-DSLURM_VERSION={number}", "-o", str(plugin), str(_SOURCE)])
    listed.write_text(f"required {plugin} {' '.join(options)}\n")
    return {"PlugStackConfig": str(listed)}
