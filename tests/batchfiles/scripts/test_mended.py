"""Mended files as bash and shellcheck read them: neither has anything to say that it had not said before."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from batchfiles.bash.syntax import syntax_fault
from batchfiles.fixes.mending import mended
from batchfiles.slurm.request import SiteFacts
from tests.batchfiles.unit.test_codes import CASES

# A variable that only what was mended has read is still set, and a code is kept behind the echo of the file's end. A
# host is one word, and nobody reads its code in an export. An array has the words of its text, as is meant.
NO_HARM = {2034, 2046, 2155, 2206, 2207, 2320}


@pytest.mark.full
def test_a_mended_file_reads_as_well_as_before(tmp_path: Path, needs: Callable[[str], Path]) -> None:
    texts = [text.encode() if isinstance(text, str) else text for pairs in CASES.values() for text, _ in pairs]
    paths = list[Path]()
    for at, raw in enumerate(texts):
        after = mended(Path("a.sbatch"), raw, SiteFacts(), unsafe=True).after
        if after != raw:
            assert syntax_fault(after) is None or syntax_fault(raw) is not None, after.decode()
            for name, text in (("before", raw), ("after", after)):
                paths.append(tmp_path / f"{at}-{name}")
                paths[-1].write_bytes(text)
    words = [str(needs("shellcheck")), "--shell=bash", "--severity=warning", "--format=json", *map(str, paths)]
    said = json.loads(subprocess.run(words, check=False, capture_output=True).stdout)
    found = Counter((one["file"], one["code"]) for one in said if one["code"] not in NO_HARM)
    new = [
        key
        for key in found
        if key[0].endswith("after") and found[key] > found[key[0].replace("after", "before"), key[1]]
    ]
    assert {code: Path(file).read_text() for file, code in new} == {}
