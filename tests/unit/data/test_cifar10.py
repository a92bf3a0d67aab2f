from __future__ import annotations

import gzip
import hashlib
import pickle as pickling
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cutting_server import Behaviour, serving
from tests.support.small_cifar import TRAIN, files, make_batches, mapping, number, pickle, sha256, write_archive
from trainjob.contract.errors import UserError
from trainjob.data import cifar10
from trainjob.data.prepare import prepare
from trainjob.data.shards import open_by_name


@pytest.fixture
def batches() -> Any:
    return make_batches()


@pytest.fixture
def archive(tmp_path: Path, batches: Any) -> Any:
    return write_archive(tmp_path / "cifar-10-python.tar.gz", batches)


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainjob.contract.clock.sleep", lambda seconds: None)


def test_images_come_through_bit_for_bit(archive: Any, folder: Path, batches: Any) -> None:
    prepare("cifar10", folder, source=str(archive), sha256=sha256(archive))
    opened = open_by_name("cifar10", folder)
    for split, names in (("train", TRAIN), ("test", ["test_batch"])):
        found = opened.split(split)
        expected = np.concatenate([batches[name].pixels for name in names])
        # Planes of red, green and blue, row by row, as the archive has them.
        assert np.array_equal(found.images.reshape(-1, 3, 1024), expected.reshape(-1, 3, 1024))
        assert found.labels.tolist() == [label for name in names for label in batches[name].labels]
    assert opened.manifest.classes == 10


def test_mean_and_deviation_are_those_of_the_training_images(archive: Any, folder: Path, batches: Any) -> None:
    prepare("cifar10", folder, source=str(archive), sha256=sha256(archive))
    manifest = open_by_name("cifar10", folder).manifest
    pixels = np.concatenate([batches[name].pixels for name in TRAIN]).reshape(-1, 3, 1024) / 255
    assert manifest.mean == pytest.approx(pixels.mean(axis=(0, 2)), abs=1e-4)
    assert manifest.std == pytest.approx(pixels.std(axis=(0, 2)), abs=1e-4)


def test_the_manifest_does_not_depend_on_where_the_archive_came_from(
    archive: Any, folder: Path, tmp_path: Path
) -> None:
    prepare("cifar10", folder, source=str(archive), sha256=sha256(archive))
    with serving(Behaviour(archive.read_bytes())) as server:
        prepare("cifar10", tmp_path / "other", source=server.url, sha256=sha256(archive))
    assert sha256(folder / "cifar10/manifest.json") == sha256(tmp_path / "other/cifar10/manifest.json")


def test_the_official_archive_needs_no_checksum(archive: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10, "OFFICIAL_MD5", hashlib.md5(archive.read_bytes()).hexdigest())
    assert prepare("cifar10", folder, source=str(archive))


def test_any_other_archive_is_refused_without_one(archive: Any, folder: Path) -> None:
    with pytest.raises(UserError, match=rf"not the official archive.*give --sha256 {sha256(archive)}"):
        prepare("cifar10", folder, source=str(archive))
    assert files(folder) == []


def test_a_wrong_checksum_is_refused(archive: Any, folder: Path) -> None:
    with pytest.raises(UserError, match=rf"sha256 is {sha256(archive)}, expected 00ff"):
        prepare("cifar10", folder, source=str(archive), sha256="00ff")
    assert files(folder) == []


@pytest.mark.parametrize("source", [None, "nowhere.tar.gz", "/"])
def test_without_an_archive_it_says_where_there_is_one(folder: Path, source: str | None) -> None:
    with pytest.raises(UserError, match=r"give --from FILE-or-URL \(https://www.cs.toronto.edu"):
        prepare("cifar10", folder, source=source)


def test_again_keeps_what_is_there_until_the_new_one_is_whole(archive: Any, folder: Path) -> None:
    prepare("cifar10", folder, source=str(archive), sha256=sha256(archive))
    before = sha256(folder / "cifar10/manifest.json")
    with pytest.raises(UserError):
        prepare("cifar10", folder, again=True, source=str(archive), sha256="00ff")
    assert sha256(folder / "cifar10/manifest.json") == before
    prepare("cifar10", folder, again=True, source=str(archive), sha256=sha256(archive))
    assert files(folder) == ["cifar10"]


# -- what is in the archive --------------------------------------------------------------------


def refuse(tmp_path: Path, folder: Path, batches: Any, **instead: Any) -> str:
    archive = write_archive(tmp_path / "strange.tar.gz", batches, **instead)
    with pytest.raises(UserError) as caught:
        prepare("cifar10", folder, source=str(archive), sha256=sha256(archive))
    assert files(folder) == []
    return str(caught.value)


@pytest.mark.parametrize(
    "code",
    [
        b"cos\nsystem\n(U\x04truetR",
        b"cbuiltins\neval\n(U\x011tR",
        b"c__builtin__\neval\n(U\x011tR",
        b"cnumpy\nload\n(U\x01xtR",
        b"cnumpy.core.multiarray\nfrombuffer\n(U\x01xtR",
    ],
)
def test_a_pickle_can_run_nothing(tmp_path: Path, folder: Path, batches: Any, code: bytes) -> None:
    message = refuse(tmp_path, folder, batches, data_batch_3=pickle(code))
    module, name = code[1:].decode().split("\n")[:2]
    assert f"data_batch_3 in {tmp_path}/strange.tar.gz: a pickle asks for {module}.{name}" in message


def test_a_pickle_can_choose_no_codec(tmp_path: Path, folder: Path, batches: Any) -> None:
    strange = pickle(b"c_codecs\nencode\n(X\x01\x00\x00\x00xX\x05\x00\x00\x00rot13tR")
    assert "as rot13" in refuse(tmp_path, folder, batches, data_batch_1=strange)


def test_pickles_of_python_3_are_read_as_well(tmp_path: Path, folder: Path, batches: Any) -> None:
    content = {b"data": batches["data_batch_1"].pixels, b"labels": batches["data_batch_1"].labels}
    archive = write_archive(tmp_path / "new.tar.gz", batches, data_batch_1=pickling.dumps(content, protocol=2))
    prepare("cifar10", folder, source=str(archive), sha256=sha256(archive))
    found = open_by_name("cifar10", folder).split("train").images[: len(content[b"labels"])]
    assert np.array_equal(found.reshape(-1, 3072), content[b"data"])


@pytest.mark.parametrize(
    ("instead", "message"),
    [
        ({"data_batch_2": b"\x80\x02}"}, "data_batch_2 in .* is not a pickle that can be read"),
        ({"data_batch_2": pickle(number(3))}, "data_batch_2 has no b'data' of"),
        ({"data_batch_2": pickle(mapping(data=number(3)))}, "data_batch_2 has no b'data' of"),
        ({"batches.meta": pickle(number(3))}, "data_batch_1 has labels outside 0 to"),
    ],
)
def test_other_contents_are_refused(
    tmp_path: Path, folder: Path, batches: Any, instead: dict[str, Any], message: str
) -> None:
    assert re.search(message, refuse(tmp_path, folder, batches, **instead))


def test_a_batch_that_is_not_there_is_named(tmp_path: Path, folder: Path, batches: Any) -> None:
    del batches["data_batch_4"]
    assert "lacks data_batch_4" in refuse(tmp_path, folder, batches)


@pytest.mark.parametrize("broken", [b"no archive", None])
def test_what_is_no_archive_is_refused(archive: Any, folder: Path, broken: bytes | None) -> None:
    archive.write_bytes(archive.read_bytes()[:5000] if broken is None else broken)
    with pytest.raises(UserError, match=r"is not a tar archive that can be read"):
        prepare("cifar10", folder, source=str(archive), sha256=sha256(archive))
    assert files(folder) == []


@pytest.mark.parametrize("target", ["data_batch_2", "/etc/passwd", "nowhere", "data_batch_1"])
def test_links_in_an_archive_are_left_out(tmp_path: Path, folder: Path, batches: Any, target: str) -> None:
    del batches["data_batch_1"]
    archive = write_archive(tmp_path / "whole.tar.gz", batches)
    linked = tmp_path / "linked.tar"
    linked.write_bytes(gzip.decompress(archive.read_bytes()))
    with tarfile.open(linked, "a") as stream:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            member = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
            member.type, member.linkname = kind, target
            stream.addfile(member)
    with pytest.raises(UserError, match="lacks data_batch_1"):
        prepare("cifar10", folder, source=str(linked), sha256=sha256(linked))
    assert files(folder) == []


# -- from a URL --------------------------------------------------------------------------------


def test_a_cut_download_goes_on_where_it_stopped(archive: Any, folder: Path) -> None:
    content = archive.read_bytes()
    message: list[str] = []
    with serving(Behaviour(content, cuts=[1000, 0, 2000])) as server:
        prepare("cifar10", folder, source=server.url, sha256=sha256(archive), say=message.append)
    assert server.asked == [None, "bytes=1000-", "bytes=1000-", "bytes=3000-"]
    assert len(message) == 3
    assert files(folder) == ["cifar10"]
    assert "archive.part" not in files(folder / "cifar10")


def test_a_cut_download_starts_over_where_the_server_knows_no_ranges(archive: Any, folder: Path) -> None:
    with serving(Behaviour(archive.read_bytes(), cuts=[1000], ranges=False)) as server:
        prepare("cifar10", folder, source=server.url, sha256=sha256(archive))
    assert server.asked == [None, "bytes=1000-"]
    assert files(folder) == ["cifar10"]


def test_tries_that_bring_nothing_come_to_an_end(archive: Any, folder: Path) -> None:
    with serving(Behaviour(archive.read_bytes(), cuts=[1000] + [0] * 50)) as server:
        with pytest.raises(UserError, match=r"could not be fetched: it stopped after 0.0 of 0.\d MB"):
            prepare("cifar10", folder, source=server.url, sha256=sha256(archive))
        assert len(server.asked) == 5
    assert files(folder) == []


def test_an_overloaded_server_is_asked_again_and_a_wrong_address_is_not(archive: Any, folder: Path) -> None:
    for code, times in ((503, 4), (404, 1)):
        with serving(Behaviour(archive.read_bytes(), code=code)) as server:
            with pytest.raises(UserError, match=str(code)):
                prepare("cifar10", folder, source=server.url, sha256=sha256(archive))
            assert len(server.asked) == times


def test_a_server_that_is_not_there_is_named(folder: Path) -> None:
    with serving(Behaviour(b"")) as gone:
        pass
    with pytest.raises(UserError, match=rf"{gone.url} could not be fetched.*refused"):
        prepare("cifar10", folder, source=gone.url)
    with pytest.raises(UserError, match="begins with https://"):
        prepare("cifar10", folder, source="file:///etc/hostname")


def test_a_download_with_a_wrong_checksum_leaves_nothing(archive: Any, folder: Path) -> None:
    other = Behaviour(archive.read_bytes() + b"x")
    with serving(other), pytest.raises(UserError, match="is not the expected archive"):
        prepare("cifar10", folder, source=other.url, sha256=sha256(archive))
    assert files(folder) == []
