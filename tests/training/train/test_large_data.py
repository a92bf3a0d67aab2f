"""A rank's own memory does not grow with its data set: ten gigabytes of images that no disk holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support.programs import ran
from trainjob.data.manifest import FileFacts, Manifest, SplitFacts

SAMPLES = 10 * 10**9 // 3072
LIMIT_MB = 200

# What a rank does with its data, and nothing else of torch's.
LOAD = """
import json, sys
from pathlib import Path
from trainjob.train.samples.arithmetic import Arithmetic
from trainjob.train.samples.batches import blocks
from trainjob.train.tasks.base import DataPlace
from trainjob.train.tasks.resnets import Cifar10ResNet50

def anonymous_mb():
    text = Path("/proc/self/status").read_text()
    return int(text.split("RssAnon:")[1].split()[0]) / 1000

before = most = anonymous_mb()
data = Cifar10ResNet50().open_data(DataPlace("sparse", Path(sys.argv[1]), 0, True))
samples = len(data.train)
counts = Arithmetic(samples, 256, 1, instances=1, device_iterations=1, remainder="drop", seed=1)
seen = 0
for block in blocks(data.train, counts, 0, 0, 3):
    seen += len(block.targets)
    most = max(most, anonymous_mb())
print(json.dumps([samples, seen, most - before]))
"""


def sparse(path: Path, size: int) -> FileFacts:
    with open(path, "wb") as stream:
        stream.truncate(size)
    return FileFacts(path.name, size, "0" * 64)


def test_own_memory_stays_bounded_with_ten_gigabytes_of_images(tmp_path: Path) -> None:
    folder = tmp_path / "sparse"
    folder.mkdir()
    files = {"images": sparse(folder / "i.bin", SAMPLES * 3072), "labels": sparse(folder / "l.bin", SAMPLES)}
    known = Manifest(
        name="sparse",
        shape=(3, 32, 32),
        dtype="uint8",
        label_dtype="uint8",
        classes=10,
        maximum=255,
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
        splits={"train": SplitFacts(SAMPLES, files)},
        source="",
        licence="",
        attribution="",
    )
    (folder / "manifest.json").write_text(known.to_json())
    ended = ran([sys.executable, "-c", LOAD, str(tmp_path)], code=0)
    samples, seen, grown_mb = json.loads(ended.stdout)
    assert (samples, seen) == (SAMPLES, 3 * 256)
    assert grown_mb < LIMIT_MB
