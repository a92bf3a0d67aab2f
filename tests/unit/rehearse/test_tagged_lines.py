"""Lines of instances come whole, whatever the pieces in which they arrive."""

from __future__ import annotations

import pytest

from standins.pod.running import TaggedLines


def delivered(*blocks: bytes) -> list[bytes]:
    lines: list[bytes] = []
    tagged = TaggedLines(lines.append)
    for block in blocks:
        tagged.add(block)
    tagged.finish()
    return lines


def test_fragments_of_two_instances_become_two_lines() -> None:
    """print(a, b, c) arrives in fragments, each tagged, those of different ranks mixed."""
    mixed = b"[1,1]<stdout>:offset[1,1]<stdout>: 2[1,0]<stdout>:offset[1,1]<stdout>: of 8\n[1,0]<stdout>: 0 of 8\n"
    assert delivered(mixed) == [b"[1,1]<stdout>:offset 2 of 8\n", b"[1,0]<stdout>:offset 0 of 8\n"]


@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_block_may_end_anywhere(size: int) -> None:
    text = b"[1,0]<stdout>:one [1,1]<stderr>:other\nof mpirun itself\n[1,0]<stdout>:line\n"
    blocks = [text[at : at + size] for at in range(0, len(text), size)]
    assert delivered(*blocks) == [b"[1,1]<stderr>:other\n", b"of mpirun itself\n", b"[1,0]<stdout>:one line\n"]


def test_the_last_words_of_an_instance_that_died_are_not_lost() -> None:
    assert delivered(b"[1,0]<stdout>:half a li[1,1]<stdout>:so") == [
        b"[1,0]<stdout>:half a li\n",
        b"[1,1]<stdout>:so\n",
    ]


def test_what_comes_without_tags_is_tagged_by_the_line() -> None:
    lines: list[bytes] = []
    tagged = TaggedLines(lines.append)
    for tag, block in ((b"[1,0]:", b"a"), (b"[1,1]:", b"x\ny"), (b"[1,0]:", b" b\n")):
        tagged.add_of(tag, block)
    tagged.finish()
    assert lines == [b"[1,1]:x\n", b"[1,0]:a b\n", b"[1,1]:y\n"]
