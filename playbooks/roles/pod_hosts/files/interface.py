"""Finds the interface that jobs use, by name or CIDR: exactly one IPv4 address must be on it. Prints it as JSON."""

import ipaddress
import json
import subprocess
import sys

ADDRESSES = ["ip", "-json", "-4", "address", "show", "up"]


def main(asked):
    """Check every part of the comma list `asked`."""
    found = json.loads(subprocess.run(ADDRESSES, stdout=subprocess.PIPE, check=True).stdout or "[]")
    here = [(link["ifname"], one["local"]) for link in found for one in link.get("addr_info", ())]
    print(json.dumps({part: only_one(part, here) for part in asked.split(",")}))


def only_one(part, here):
    """Return the one address that `part` means."""
    matching = [address for name, address in here if fits(part, name, address)]
    if len(matching) != 1:
        shown = ", ".join("%s %s" % pair for pair in here)
        sys.exit(
            "network interface %s has %d addresses on this host (%s), and Open MPI takes one with exactly one: name "
            "another in network:" % (part, len(matching), shown)
        )
    return matching[0]


def fits(part, name, address):
    """Return whether an interface's `address` is meant by `part`."""
    if "/" in part:
        return ipaddress.ip_address(address) in ipaddress.ip_network(part, strict=False)
    return name.split("@")[0] == part


main(sys.argv[1])
