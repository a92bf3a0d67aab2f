"""Code that the contract's tests run in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Writes two whole texts in turn, for ever, until it is killed.
WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.support import ROOT
from trainjob.records.files import append_json_line, write_atomically
path, texts, turn = Path(sys.argv[1]), ("a" * {size}, "b" * {size}), 0
while True:
    turn += 1
    {action}
    if turn == 2:
        print("at work", flush=True)
"""
# Refuses what no Poplar SDK virtualenv has, then imports the modules that are named.
IMPORTER = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
REFUSED = {"typer", "click", "yaml", "jinja2", "rich", "platformdirs", "numpy", "torch", "tqdm"}
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ImportError("refused: " + name)
sys.meta_path.insert(0, Refusing())
for name in sys.argv[2:]:
    importlib.import_module(name)
print(sys.version_info[:2], len(sys.argv[2:]))
"""


def start(code: str, *arguments: str | Path, python: str | Path = sys.executable) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(python), "-I", "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(code: str, *arguments: str | Path, python: str | Path = sys.executable) -> str:
    process = start(code, *arguments, python=python)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out
