from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import each
from trainjob.cluster.slurm_text import MOST_HOSTS, HostlistError, compress, expand

# What `scontrol show hostnames` of Slurm 22.05.8 printed.
AS_SLURM = {
    "n[1-3]": "n1 n2 n3",
    "n[01-12]": "n01 n02 n03 n04 n05 n06 n07 n08 n09 n10 n11 n12",
    "n[1-010]": "n1 n2 n3 n4 n5 n6 n7 n8 n9 n10",
    "n[098-101]": "n098 n099 n100 n101",
    "n[00-2]": "n00 n01 n02",
    "r[1-2]n[1-3]": "r1n1 r1n2 r1n3 r2n1 r2n2 r2n3",
    "r[1-2][1-2]": "r11 r12 r21 r22",
    "a[1,3-5],b": "a1 a3 a4 a5 b",
    "[1-3]": "1 2 3",
}

# What `scontrol show hostlist` printed.
AS_SLURM_WRITES = {
    "n1,n2,n3": "n[1-3]",
    "n09,n10,n11": "n[09-11]",
    "n99,n100": "n[99-100]",
    "n01,n02,n03": "n[01-03]",
    "n1.x,n2.x": "n1.x,n2.x",
    "r1n1,r1n2,r2n1,r2n2": "r1n[1-2],r2n[1-2]",
    "b,a": "b,a",
    "n3,n1,n2": "n[3,1-2]",
}


@each(("written", "names"), AS_SLURM.items())
def test_expands_as_slurm_does(written: Any, names: Any) -> None:
    assert expand(written) == tuple(names.split())


@each(("names", "written"), AS_SLURM_WRITES.items())
def test_compresses_as_slurm_does(names: Any, written: Any) -> None:
    assert compress(names.split(",")) == written


def test_expands_text_behind_a_bracket() -> None:
    assert expand("n[1-2].example.org") == ("n1.example.org", "n2.example.org")


def test_a_list_may_hold_ranges() -> None:
    assert expand(["login", "n[1-2],m", "r[1,3]"]) == ("login", "n1", "n2", "m", "r1", "r3")


def test_a_name_without_number_is_not_taken_into_a_bracket() -> None:
    assert compress(["n", "n1", "n2"]) == "n,n[1-2]"


def test_no_names_compress_to_nothing() -> None:
    assert compress([]) == ""


MESSAGES = {
    "n[1-2": "'n[1-2' opens a [ at character 2 and never closes it: write ]",
    "a,n[1-2": "'n[1-2' opens a [ at character 2 and never closes it: write ]",
    "n1-2]": "'n1-2]' has a ] at character 5 without a [ before it: write [ first",
    "n[1[2-3]]": "'n[1[2-3]]' opens a [ inside the one at character 2: close that first",
    "n[]": "'n[]' has an empty range: write numbers as [1-4], [01-12] or [1,3-5]",
    "n[1-2,]": "'n[1-2,]' has an empty range: write numbers as [1-4], [01-12] or [1,3-5]",
    "n[1-]": "'n[1-]' has '1-' where a range belongs: write numbers as [1-4], [01-12] or [1,3-5]",
    "n[a-c]": "'n[a-c]' has 'a-c' where a range belongs: write numbers as [1-4], [01-12] or [1,3-5]",
    "n[²]": "'n[²]' has '²' where a range belongs: write numbers as [1-4], [01-12] or [1,3-5]",
    "n[3-1]": "'n[3-1]' has the range 3-1, which runs backwards: write 1-3",
    "a, b": "'a, b' holds a space: separate hosts by commas only, or write them as a list",
    "n[1- 2]": "'n[1- 2]' holds a space: separate hosts by commas only, or write them as a list",
    "a,,b": "'a,,b' has an empty entry: take the extra comma out, or name a host there",
    "a,": "'a,' has an empty entry: take the extra comma out, or name a host there",
    "": "'' has an empty entry: take the extra comma out, or name a host there",
    "a,b,a": "host a is named 2 times: name every host once",
    "n[1-3],n2": "host n2 is named 2 times: name every host once",
    "n[1-99999999999]": "'n[1-99999999999]' makes more than 65,536 hosts, the most there may be: shorten it",
    "n[1-65536],b": "'b' makes more than 65,536 hosts, the most there may be: shorten it",
    "r[1-300]n[1-300]": "'r[1-300]n[1-300]' makes more than 65,536 hosts, the most there may be: shorten it",
    "-oProxyCommand=x": "'-oProxyCommand=x' gives the host name '-oProxyCommand=x': a name has letters",
    "a;reboot": "'a;reboot' gives the host name 'a;reboot': a name has letters",
    "n" * 254: "and has at most 253 characters",
}


@each(("written", "message"), MESSAGES.items())
def test_refuses_with_what_was_read_and_the_cure(written: Any, message: Any) -> None:
    with pytest.raises(HostlistError, match=re.escape(message)):
        expand(written)


def test_refuses_an_empty_list() -> None:
    with pytest.raises(HostlistError, match="the host list is empty: name at least one host"):
        expand([])


@pytest.mark.parametrize("names", [["a", "a"], ["n[1-2]"], ["a,b"], [""]])
def test_compress_refuses_what_expand_would_not_give_back(names: list[str]) -> None:
    with pytest.raises(HostlistError):
        compress(names)


NAMES = st.from_regex(r"[a-c]{0,2}[0-9]{0,3}(-?[a-b]?[0-9]{1,4})?", fullmatch=True).filter(
    lambda name: name and not name.startswith("-")
)


@given(st.lists(NAMES, min_size=1, max_size=30, unique=True))
def test_compressing_loses_nothing_and_keeps_the_order(names: Any) -> None:
    assert expand(compress(names)) == tuple(names)


@given(st.lists(NAMES, min_size=1, max_size=30, unique=True))
def test_compressing_is_never_longer_and_compressing_again_changes_nothing(names: Any) -> None:
    text = compress(names)
    assert len(text) <= len(",".join(names)) + 2 * len(names)
    assert compress(expand(text)) == text


@given(
    first=st.integers(0, 300),
    count=st.integers(1, 300),
    digits=st.integers(1, 5),
    stem=st.sampled_from(["n", "pod-host", "r1n", ""]),
)
def test_a_range_has_as_many_names_as_numbers_padded_alike(first: Any, count: Any, digits: Any, stem: Any) -> None:
    names = expand(f"{stem}[{first:0{digits}d}-{first + count - 1}]")
    assert list(names) == [f"{stem}{first + index:0{max(digits, len(str(first)))}d}" for index in range(count)]


@given(st.text(alphabet="ab01[]-, .", max_size=20))
def test_any_text_is_read_or_refused(text: Any) -> None:
    try:
        names = expand(text)
    except HostlistError:
        return
    assert expand(compress(names)) == names


def test_four_thousand_hosts_come_back_as_they_were_and_the_cap_is_reached() -> None:
    names = expand("pod[1-4096]")
    assert (len(names), names[0], names[-1]) == (4096, "pod1", "pod4096")
    assert compress(names) == "pod[1-4096]"
    assert expand(",".join(names)) == names
    assert len(expand("n[1-65536]")) == MOST_HOSTS
