"""Writes what is generated in the documentation. Run it at the root of the source tree.

python -m docs.generate reference         # docs/reference/*.md; a test compares them with the code
python -m docs.generate outputs [PAGE …]  # the output of every command that a page shows, see docs/outputs.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from docs import outputs
from docs.reference_pages import reference

DOCS = Path(__file__).resolve().parent
README = DOCS.parent / "README.md"


def main(what: str, *pages: str) -> None:
    """Write `what`: reference or outputs; of the latter those of `pages`, or of all."""
    if what == "reference":
        for path, text in reference().items():
            (DOCS / path).write_text(text, encoding="utf-8")
        return
    failed = []
    for page in [Path(name) for name in pages] or [README, *sorted(DOCS.rglob("*.md"))]:
        try:
            page.write_text(outputs.written(page.read_text(encoding="utf-8")), encoding="utf-8")
        except outputs.WrongOutputError as error:
            failed.append(f"{page}: {error}")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main(*sys.argv[1:])
