"""The public machine that a login node belongs to, by names."""

from __future__ import annotations

from tests.support.cases import each
from trainjob.requests.login_node import by_names


@each(
    ("cluster", "host", "site"),
    [
        ("lumi", "uan01", "lumi-g"),
        ("perlmutter", "login21", "perlmutter"),
        ("slurm", "login01.leonardo.local", "leonardo"),
        ("slurm", "jwlogin08.juwels", "juwels-booster"),
        ("slurm", "int4.snellius.surf.nl", "snellius"),
        ("slurm", "dt-login01.delta.ncsa.illinois.edu", "delta"),
        ("slurm", "della8.princeton.edu", "della"),
        ("slurm", "jean-zay1", "jean-zay"),
        ("slurm", "daint-ln001", "alps-daint"),
        ("DAINT", "", "alps-daint"),
        ("", "laptop.example.org", None),
        ("slurm", "booster.example.org", None),
        ("deltaforce", "illuminated", None),
        ("slurm", "dt-login01", None),
    ],
)
def test_a_site_is_known_by_its_slurm_or_its_host(cluster: str, host: str, site: str | None) -> None:
    found = by_names(cluster, host)
    assert (found and found.site) == site
    if found is not None:
        assert f"trainjob cluster init --site {site}" in str(found)
