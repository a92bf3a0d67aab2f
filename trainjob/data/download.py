"""One file from a URL, fetched and checked: a cut download continues, or starts over where the server can't."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import BinaryIO, NamedTuple, Optional
from urllib.parse import urlsplit

from trainjob.contract import clock
from trainjob.contract.errors import UserError
from trainjob.contract.paths import with_home
from trainjob.data.checking import Say, WorkProgress
from trainjob.records.checkpoints import sha256_of
from trainjob.records.files import remove_if_there, sync_folder

_CHUNK = 1 << 18
_TIMEOUT_S = 30.0
# In a row that bring nothing; a try that brings something is not counted, up to the most that are made at all.
_TRIES = 4
_MOST_TRIES = 100
_PAUSE_S = 0.5  # doubled with every try that brings nothing
_WORTH_ANOTHER_TRY = (408, 429)  # besides 5xx


def is_url(text: str) -> bool:
    """Return whether `text` is an address rather than a file's name."""
    return "://" in text


def download(url: str, path: Path, say: Say, keep_part: bool = False) -> None:
    """Fetch `url` into the file `path`; `keep_part` keeps what is already in it and requests the rest.

    Raises UserError if the server does not give it whole.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise UserError("%s can't be fetched" % url, "give an address that begins with https:// or http://, or a file")
    with open(str(path), "ab" if keep_part else "wb") as stream:
        _Download(url, stream, say).run()


class _CutError(Exception):
    """The connection ended before the file did."""


class _Download:
    def __init__(self, url: str, stream: BinaryIO, say: Say) -> None:
        self._url, self._stream, self._say = url, stream, say
        self._total: Optional[int] = None  # None: the server does not say
        self._progress = WorkProgress(say)

    def run(self) -> None:
        """Try until the file is complete, or further attempts bring no more bytes."""
        in_vain = 0
        for _ in range(_MOST_TRIES):
            before = self._stream.tell()
            try:
                return self._attempt()
            except _CutError as error:
                reason = str(error)
            in_vain = 0 if self._stream.tell() > before else in_vain + 1
            if in_vain == _TRIES:
                break
            self._say("the download stopped after %s (%s): trying again" % (self._so_far(), reason))
            clock.sleep(_PAUSE_S * (2**in_vain - 1))
        raise UserError(
            "%s could not be fetched: it stopped after %s, %s" % (self._url, self._so_far(), reason),
            "Try again later, or give the archive as a file",
        )

    def _attempt(self) -> None:
        """Request the missing part and write it. Raises what ends a connection."""
        with self._open() as response:
            if response.status != 206:
                self._stream.seek(0)
                self._stream.truncate()
                self._total = _number(response.headers.get("Content-Length", ""))
            elif self._total is None:
                self._total = _number(response.headers["Content-Range"].rpartition("/")[2])
            while True:
                try:
                    chunk = response.read(_CHUNK)
                except (OSError, http.client.HTTPException) as error:
                    raise _CutError(str(error) or type(error).__name__) from None
                if not chunk:
                    break
                self._stream.write(chunk)  # a full disk is no cut connection: it ends the download
                self._progress("%s fetched" % self._so_far())
        if self._total is not None and self._stream.tell() < self._total:
            raise _CutError("the connection was cut")

    def _open(self) -> http.client.HTTPResponse:
        have = self._stream.tell()
        headers = {"Range": "bytes=%d-" % have} if have else {}
        request = urllib.request.Request(self._url, headers=headers)  # noqa: S310 - the scheme was checked above
        try:
            response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT_S)  # noqa: S310
        except (OSError, http.client.HTTPException) as error:
            raise self._refusal(error) from None
        begins = "bytes %d-" % have
        if response.status == 206 and not response.headers.get("Content-Range", "").startswith(begins):
            response.close()
            self._stream.seek(0)  # not the requested part: the next attempt requests the whole file
            raise _CutError("the server sent another part than the one requested")
        return response

    def _refusal(self, error: Exception) -> Exception:
        """Return what to raise for a request that failed: worth another try, or not."""
        if isinstance(error, urllib.error.HTTPError):
            error.close()
            if error.code == 416:  # the file on the server is shorter now
                self._stream.seek(0)
            elif error.code < 500 and error.code not in _WORTH_ANOTHER_TRY:
                return UserError(
                    "%s can't be fetched: the server says %d %s" % (self._url, error.code, error.reason),
                    "Is the address right?",
                )
        return _CutError(str(error))

    def _so_far(self) -> str:
        have = "%.1f" % (self._stream.tell() / 1e6)
        return "%s MB" % have if self._total is None else "%s of %.1f MB" % (have, self._total / 1e6)


def _number(text: str) -> Optional[int]:
    return int(text) if text.isdigit() else None


class Fetched(NamedTuple):
    """The path of the file, and whether it had to be fetched."""

    path: Path
    changed: bool


def fetch(source: str, path: Path, sha256: str, say: Say) -> Fetched:
    """Return the file that `source` names: one on this host stays where it is, one at a URL comes to `path`.

    Raises UserError if it can't be read or fetched, or has another SHA-256 (none given: any will do).
    """
    if not is_url(source):
        return Fetched(_checked(with_home(source), source, sha256), changed=False)
    if path.exists() and sha256 and sha256_of(path) == sha256.lower():
        return Fetched(path, changed=False)
    part = path.with_name(path.name + ".part")
    try:
        _fetch(source, part, sha256, say)
        os.replace(str(part), str(path))
        sync_folder(path.parent)
    except OSError as error:
        raise UserError(
            "%s can't be written: %s" % (path, error), "Free some space there, or give another path"
        ) from None
    return Fetched(path, changed=True)


def _fetch(source: str, part: Path, sha256: str, say: Say) -> None:
    part.parent.mkdir(parents=True, exist_ok=True)
    continued = part.exists()
    download(source, part, say, keep_part=True)
    try:
        _checked(part, source, sha256)
    except UserError:
        remove_if_there(part)
        if not continued:
            raise
        say("the part left by an earlier download belongs to another file: starting over")
        _fetch(source, part, sha256, say)


def _checked(path: Path, source: str, sha256: str) -> Path:
    try:
        digest = sha256_of(path)
    except OSError as error:
        raise UserError("%s can't be read: %s" % (path, error.strerror), "remove it, and download it again") from None
    if sha256 and digest != sha256.lower():
        raise UserError(
            "%s is not the expected file: its sha256 is %s, expected %s" % (source, digest, sha256),
            "Fetch it again, or correct sha256:",
        )
    return path
