"""The package itself: the part that every run carries, the folders that come with it, and its shell programs."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import List

# What runs on a cluster. Every run carries these in its code/, images for IPUs contain them, and `check` sends them.
RUNTIME_PACKAGES = ("contract", "records", "data", "launch", "train")
# Folders that lie beside the package in a checkout, and inside it in a wheel.
COMPANIONS = ("containers", "playbooks", "standins", "templates")


def folder() -> Path:
    """Return the folder of the package that is running."""
    return Path(__file__).resolve().parent.parent


def companion(name: str) -> Path:
    """Return one of COMPANIONS of the running package."""
    inside = folder() / name
    return inside if inside.is_dir() else folder().parent / name


def install_command(extra: str) -> str:
    """Return the command line that adds an extra to the installation that is running, by the program that made it.

    trainjob is on no index, so the line names the clone or the wheel from which it was installed (PEP 610).
    """
    import json
    import shlex
    import sys
    from importlib import metadata
    from urllib.parse import unquote, urlparse

    try:
        source = json.loads(metadata.distribution("trainjob").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        source = {}
    path = unquote(urlparse(source.get("url", "")).path) or str(folder().parent)
    with_extra = "%s[%s]" % (path, extra)
    if Path(sys.prefix, "uv-receipt.toml").exists():
        return shlex.join(["uv", "tool", "install", "trainjob[%s] @ %s" % (extra, path)])
    if Path(sys.prefix, "pipx_metadata.json").exists():
        return shlex.join(["pipx", "install", "--force", with_extra])
    editable = ["-e"] if source.get("dir_info", {}).get("editable") else []
    return shlex.join([sys.executable, "-m", "pip", "install", *editable, with_extra])


@lru_cache(maxsize=None)
def program(caller: str, name: str) -> str:
    """Return the program `name` beside the module file `caller`: `package.program(__file__, "probe.sh")`.

    An ordinary file next to the module that runs it is where shellcheck and editors find it.
    """
    return (Path(caller).parent / name).read_text(encoding="utf-8")


def program_command(caller: str, name: str, *arguments: str, interpreter: str = "sh") -> List[str]:
    """Return the command that runs NAME.sh, the program beside the module file `caller`, with `arguments`.

    The program's text travels on the command line, so that the machine that runs it needs nothing of ours.
    """
    return [interpreter, "-c", program(caller, "%s.sh" % name), "%s.sh" % name, *arguments]
