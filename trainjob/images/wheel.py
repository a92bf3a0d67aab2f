"""Our own wheel, made from the package that runs: the same bytes from a clone and from an installation."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from trainjob.contract import package
from trainjob.contract.errors import UserError

# The oldest time that a zip can say: the same content gives the same bytes, and the engine's cache holds.
_TIME = (1980, 1, 1, 0, 0, 0)


def write_wheel(folder: Path) -> Path:
    """Return the wheel of the running trainjob, written into `folder`.

    Raises UserError where trainjob runs from sources that were never installed.
    """
    installed = _distribution()
    target = folder / f"trainjob-{installed.version}-py3-none-any.whl"
    members = {**dict(_package()), **_facts(installed)}
    record = f"trainjob-{installed.version}.dist-info/RECORD"
    members[record] = _record(members, record)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in sorted(members.items()):
            wheel.writestr(_member(name), content)
    return target


def _distribution() -> metadata.Distribution:
    try:
        return metadata.distribution("trainjob")
    except metadata.PackageNotFoundError:
        raise UserError(
            "trainjob runs from sources that are not installed, so what it needs is not known", "run: pip install -e ."
        ) from None


def requirements() -> list[str]:
    """Return what pip installs beside us where ranks train: our own needs and those of the extra `train`."""
    wanted = [text.partition(";") for text in _distribution().requires or ()]
    return [name.strip() for name, _, marker in wanted if not marker or "'train'" in marker or '"train"' in marker]


def _package() -> Iterator[tuple[str, bytes]]:
    for name, path in _files(package.folder()):
        yield f"trainjob/{name}", path.read_bytes()
    for companion in package.COMPANIONS:
        for name, path in _files(package.companion(companion)):
            yield f"trainjob/{companion}/{name}", path.read_bytes()


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix(), path


def _facts(installed: metadata.Distribution) -> dict[str, bytes]:
    folder = f"trainjob-{installed.version}.dist-info"
    # The description is the README: no image needs it, and every change of it would rebuild one.
    headers = (installed.read_text("METADATA") or "").partition("\n\n")[0] + "\n"
    return {
        f"{folder}/METADATA": headers.encode(),
        f"{folder}/WHEEL": b"Wheel-Version: 1.0\nGenerator: trainjob\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{folder}/entry_points.txt": (installed.read_text("entry_points.txt") or "").encode(),
        f"{folder}/licenses/LICENSE": (installed.read_text("licenses/LICENSE") or "").encode(),
    }


def _record(members: dict[str, bytes], own_name: str) -> bytes:
    lines = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in sorted(members.items())]
    return "\n".join([*lines, f"{own_name},,", ""]).encode()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _TIME)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    return member
