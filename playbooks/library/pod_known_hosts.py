#!/usr/bin/python
"""The keys of a pod's hosts in a user's known_hosts.

Why not ansible.builtin.known_hosts: it takes one key of one host a call, so that a pod of 64 hosts with three keys each
would need 12,288 calls where one a host does; and it can't find the lines of hosts that have left the cluster.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: pod_known_hosts
short_description: The keys of a pod's hosts in a user's known_hosts
options:
  path: {type: path, required: true, description: The known_hosts file. Lines that are not ours stay.}
  owner: {type: str, required: true, description: The user whose file it is.}
  mark: {type: str, required: true, description: "How our lines begin their comment, which ends with the host's name."}
  port: {type: int, default: 22, description: Port of the hosts' ssh servers.}
  hosts: {type: list, elements: str, required: true, description: All hosts of the cluster; our lines of any other are removed.}
  keys: {type: dict, required: true, description: "The keys of the hosts to make known, by host: kind and key."}
author: [trainjob]
"""
EXAMPLES = r"""
- name: Know the hosts by their keys
  pod_known_hosts:
    path: ~/.ssh/known_hosts
    owner: ml
    mark: "trainjob:pod64:"
    hosts: [pod-host1, pod-host2]
    keys: {pod-host1: [ssh-ed25519 AAAAC3Nza]}
"""
RETURN = r"""
diff: {type: dict, returned: always, description: The lines that changed.}
"""

import os
import pwd
import socket

from ansible.module_utils.basic import AnsibleModule


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "owner": {"type": "str", "required": True},
            "mark": {"type": "str", "required": True},
            "port": {"type": "int", "default": 22},
            "hosts": {"type": "list", "elements": "str", "required": True},
            "keys": {"type": "dict", "required": True, "no_log": False},
        },
        supports_check_mode=True,
    )
    path = module.params["path"]
    try:
        before = _read(path)
        after = _merged(before, module.params)
        if after != before and not module.check_mode:
            _replace(path, after, pwd.getpwnam(module.params["owner"]))
    except OSError as error:
        module.fail_json(msg="%s: %s. Run with --become to set up another user" % (error.filename, error.strerror))
    module.exit_json(changed=after != before, diff={"prepared": _difference(path, before, after)})


def _read(path):
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def _merged(text, asked):
    """Return `text` with the lines of every host in `keys`, and without ours of hosts that have left the cluster."""
    kept = []
    for line in text.splitlines():
        comment = line.split()[-1] if line.split() else ""
        host = comment[len(asked["mark"]) :] if comment.startswith(asked["mark"]) else None
        if host is None or (host in asked["hosts"] and host not in asked["keys"]):
            kept.append(line)
    ours = [
        "%s %s %s%s" % (_names(host, asked["port"]), key, asked["mark"], host)
        for host, keys in sorted(asked["keys"].items())
        for key in keys
    ]
    # With --limit, the order alone would differ.
    return text if sorted(kept + ours) == sorted(text.splitlines()) else "".join(line + "\n" for line in kept + ours)


def _names(host, port):
    """Return a host's name and addresses, as the ssh of this machine will look for them."""
    try:
        addresses = sorted({entry[4][0] for entry in socket.getaddrinfo(host, None)})
    except OSError:
        addresses = []  # a name that only ssh's own configuration knows
    names = [host, *addresses]
    return ",".join(names if port == 22 else ["[%s]:%d" % (name, port) for name in names])


def _difference(path, before, after):
    before, after = before.splitlines(), after.splitlines()
    lines = ["- %s\n" % line for line in before if line not in after]
    lines += ["+ %s\n" % line for line in after if line not in before]
    return "".join(["%s\n" % path, *lines]) if lines else ""


def _replace(path, text, account):
    staging = "%s.%d.part" % (path, os.getpid())
    descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.chown(staging, account.pw_uid, account.pw_gid)
    os.replace(staging, path)


if __name__ == "__main__":
    main()
