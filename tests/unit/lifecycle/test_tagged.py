"""Lines of a job script's log under poprun, as `trainjob logs` shows them."""

from __future__ import annotations

from tests.support.cases import each
from trainjob.observe.logs import shown

CASES = {
    b"[1,3]<stdout>:hello": [b"[3] hello"],
    b"[1,12]<stderr>:  oh": [b"[12]   oh"],
    b"no tag at all": [b"no tag at all"],
    b"": [b""],
    b"[1,0]<stdout>:": [b"[0] "],
    # Several writes of one line, and a progress bar that is tagged at every step.
    b"[1,1]<stdout>:hi[1,1]<stdout>: [1,1]<stdout>:there": [b"[1] hi there"],
    b"\r 10%|#  [1,2]<stderr>:\r 20%|##": [b"\r 10%|#  ", b"[2] \r 20%|##"],
    # Two instances at once.
    b"[1,0]<stdout>:a[1,1]<stdout>:b": [b"[0] a", b"[1] b"],
    b"12:30:51.572 8493 POPRUN [I] The instances ended": [b"[poprun] 12:30:51.572 8493 POPRUN [I] The instances ended"],
    # What a program prints itself is not taken for a tag.
    b"loss [1, 3] <stdout>: 2": [b"loss [1, 3] <stdout>: 2"],
}


@each("line", CASES)
def test_a_line_is_shown(line: bytes) -> None:
    assert list(shown(line)) == CASES[line]
