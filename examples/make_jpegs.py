# make_jpegs.py
"""Writes 80 small JPEGs of two classes: a folder for each, as in ImageNet."""

import random
from pathlib import Path

try:
    from PIL import Image
except ModuleNotFoundError:
    raise SystemExit("make_jpegs.py needs Pillow: pip install Pillow") from None

random.seed(0)
for name, color in {"red": (200, 60, 60), "blue": (60, 60, 200)}.items():
    for split, count in (("train", 32), ("val", 8)):
        folder = Path("squares", split, name)
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            shade = [part + random.randint(-40, 40) for part in color]
            Image.new("RGB", (48, 48), tuple(shade)).save(folder / f"{number}.jpg")
