"""How trainjob/data/digits/ was made: `python make_digits.py SKLEARN_CSV_GZ FOLDER`, once, from scikit-learn's copy.

The file is sklearn/datasets/data/digits.csv.gz: 1,797 lines of 64 pixels (0 to 16) and a label. Every fifth line,
from the first on, is held out; the order within a split is the file's.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np

from trainjob.data.manifest import Manifest, SplitFacts
from trainjob.data.writing import write_array, write_data_set

ATTRIBUTION = """\
Optical Recognition of Handwritten Digits
=========================================

1,797 images of handwritten digits, 8 x 8 pixels, values 0 to 16: the test set of

  E. Alpaydin and C. Kaynak (1998). Optical Recognition of Handwritten Digits [Dataset].
  UCI Machine Learning Repository. https://doi.org/10.24432/C50P49

licensed under the Creative Commons Attribution 4.0 International licence (CC BY 4.0),
https://creativecommons.org/licenses/by/4.0/. Taken from the copy that scikit-learn carries
(sklearn/datasets/data/digits.csv.gz). Changed: stored as raw bytes, every fifth image held out as the split "test".
Made by tests/support/make_digits.py.
"""


def fill(staging: Path, table: Any) -> Manifest:
    images = table[:, :64].reshape(-1, 1, 8, 8).astype(np.uint8)
    labels = table[:, 64].astype(np.uint8)
    held_out = np.arange(len(table)) % 5 == 0
    (staging / "ATTRIBUTION").write_text(ATTRIBUTION)
    train = images[~held_out] / 16
    return Manifest(
        name="digits",
        shape=(1, 8, 8),
        dtype="uint8",
        label_dtype="uint8",
        classes=10,
        maximum=16,
        mean=(round(float(train.mean()), 4),),
        std=(round(float(train.std()), 4),),
        splits={
            "train": split(staging, "train", images[~held_out], labels[~held_out]),
            "test": split(staging, "test", images[held_out], labels[held_out]),
        },
        source="UCI Optical Recognition of Handwritten Digits, test set, as carried by scikit-learn",
        licence="CC-BY-4.0",
        attribution="E. Alpaydin, C. Kaynak (1998), https://doi.org/10.24432/C50P49",
    )


def split(staging: Path, name: str, images: Any, labels: Any) -> SplitFacts:
    files = {"images": write_array(staging / (name + "-images.bin"), images)}
    files["labels"] = write_array(staging / (name + "-labels.bin"), labels)
    return SplitFacts(samples=len(labels), files=files)


def read_table(csv: Path) -> Any:
    with gzip.open(csv, "rt") as stream:
        return np.loadtxt(stream, delimiter=",", dtype=np.int64)


if __name__ == "__main__":
    table = read_table(Path(sys.argv[1]))
    write_data_set(Path(sys.argv[2]), lambda staging: fill(staging, table))
