#!/usr/bin/python
"""SSH without prompts among the hosts of a pod, for the user that launches jobs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pod_ssh
short_description: A user's key pair, and who it knows among a pod's hosts
options:
  state:
    type: str
    choices: [made, known, verified]
    required: true
    description: Make a key pair and read the host's keys; write what is known of the others; log in to each of them.
  user: {type: str, default: "", description: The user that launches jobs. Empty, whoever runs this.}
  cluster: {type: str, default: pod, description: Marks our lines, so that those of other clusters stay.}
  port: {type: int, default: 22, description: Port of the hosts' ssh servers.}
  hosts: {type: list, elements: str, default: [], description: All hosts of the cluster; our lines of any other are removed.}
  keys: {type: dict, default: {}, description: "What state=made returned, by host, of the hosts to make known."}
author: [trainjob]
"""
EXAMPLES = r"""
- name: Make a key pair
  pod_ssh:
    state: made
    user: ml
"""
RETURN = r"""
public_key: {type: str, returned: with state=made, description: The user's public key.}
host_keys: {type: list, elements: str, returned: with state=made, description: The host's own public keys.}
"""

import glob
import os
import pwd
import socket
import subprocess

from ansible.module_utils.basic import AnsibleModule

HOST_KEYS = "/etc/ssh/ssh_host_*_key.pub"
TIMEOUT_S = 60


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["made", "known", "verified"], "required": True},
            "user": {"type": "str", "default": ""},
            "cluster": {"type": "str", "default": "pod"},
            "port": {"type": "int", "default": 22},
            "hosts": {"type": "list", "elements": "str", "default": []},
            "keys": {"type": "dict", "default": {}, "no_log": False},
        },
        supports_check_mode=True,
    )
    act = {"made": _make, "known": _know, "verified": _verify}[module.params["state"]]
    try:
        module.exit_json(**act(module, _account(module)))
    except OSError as error:
        module.fail_json(msg="%s: %s. Run with --become to set up another user" % (error.filename, error.strerror))


def _account(module):
    name = module.params["user"]
    try:
        return pwd.getpwnam(name) if name else pwd.getpwuid(os.geteuid())
    except KeyError:
        module.fail_json(msg="user %s is not known on this host: make it, or name another in pod_hosts:" % name)


# -- the key pair ------------------------------------------------------------------------------


def _make(module, account):
    folder = os.path.join(account.pw_dir, ".ssh")
    path = os.path.join(folder, "id_ed25519")
    changed = not os.path.exists(path + ".pub")
    if changed and not module.check_mode:
        _make_folder(folder, account)
        if not os.path.exists(path):
            _make_pair(module, path, account)
        # A pair whose making was cut, or a user's own, may lack the public half.
        public = _run(module, ["ssh-keygen", "-y", "-P", "", "-f", path], account)
        _replace(path + ".pub", "%s %s\n" % (" ".join(public.split()[:2]), account.pw_name), account)
    return {
        "changed": changed,
        "public_key": _read(path + ".pub").strip(),
        "host_keys": [_read(key).strip() for key in sorted(glob.glob(HOST_KEYS))],
        "diff": {"prepared": "+ %s\n" % path} if changed else {},
    }


def _make_pair(module, path, account):
    """Put a new private key at `path`, whole or not at all."""
    staging = "%s.%d.part" % (path, os.getpid())
    _run(module, ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", account.pw_name, "-f", staging], account)
    os.remove(staging + ".pub")
    os.replace(staging, path)


def _make_folder(folder, account):
    if not os.path.isdir(folder):
        os.mkdir(folder, 0o700)
        os.chown(folder, account.pw_uid, account.pw_gid)


def _read(path):
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


# -- what is known of the others ---------------------------------------------------------------


def _know(module, account):
    folder = os.path.join(account.pw_dir, ".ssh")
    wanted = {
        "authorized_keys": {host: [found["public_key"]] for host, found in module.params["keys"].items()},
        "known_hosts": {host: _known_lines(module, host, found) for host, found in module.params["keys"].items()},
    }
    changes = [_write(module, account, os.path.join(folder, name), lines) for name, lines in wanted.items()]
    return {"changed": any(changes), "diff": {"prepared": "".join(changes)}}


def _known_lines(module, host, found):
    """Return a host's keys under its name and its addresses, as the ssh of this host will look for them."""
    port = module.params["port"]
    names = [host, *_addresses(host)]
    patterns = ",".join(names if port == 22 else ["[%s]:%d" % (name, port) for name in names])
    return ["%s %s" % (patterns, " ".join(key.split()[:2])) for key in found["host_keys"]]


def _addresses(host):
    try:
        return sorted({found[4][0] for found in socket.getaddrinfo(host, None)})
    except OSError:
        return []  # a name that only ssh's own configuration knows


def _write(module, account, path, lines):
    before = _read(path)
    after = _merged(before, lines, module.params["hosts"], "trainjob:%s:" % module.params["cluster"])
    if after == before:
        return ""
    if not module.check_mode:
        _make_folder(os.path.dirname(path), account)
        _replace(path, after, account)
    return _difference(path, before.splitlines(), after.splitlines())


def _difference(path, before, after):
    gone = ["- %s\n" % line for line in before if line not in after]
    return "%s\n" % path + "".join(gone + ["+ %s\n" % line for line in after if line not in before])


def _merged(text, lines, hosts, mark):
    """Return `text` with our lines of every host in `lines` as given, and without those of hosts that have left."""
    kept = []
    for line in text.splitlines():
        comment = line.split()[-1] if line.split() else ""
        host = comment[len(mark) :] if comment.startswith(mark) else None
        if host is None or (host in hosts and host not in lines):
            kept.append(line)
    ours = [_marked(line, mark + host) for host in sorted(lines) for line in lines[host] if line]
    return "".join(line + "\n" for line in kept + ours)


def _marked(line, mark):
    """Return a line whose comment is ours: kind, key and comment, behind the names where there are any."""
    words = line.split()
    kind = next(index for index, word in enumerate(words) if word.startswith(("ssh-", "ecdsa-", "sk-")))
    return " ".join([*words[: kind + 2], mark])


def _replace(path, text, account):
    staging = "%s.%d.part" % (path, os.getpid())
    descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.chown(staging, account.pw_uid, account.pw_gid)
    os.replace(staging, path)


# -- logging in --------------------------------------------------------------------------------


def _verify(module, account):
    options = ["BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=20"]
    flags = [word for option in options for word in ("-o", option)]
    for host in module.params["hosts"]:
        _run(module, ["ssh", *flags, "-p", str(module.params["port"]), host, "true"], account)
    return {"changed": False, "reached": module.params["hosts"]}


def _run(module, words, account):
    become = [] if account.pw_uid == os.geteuid() else ["runuser", "-u", account.pw_name, "--"]
    try:
        ended = subprocess.run(
            become + words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        module.fail_json(msg="`%s` gave no answer in %d s" % (" ".join(words), TIMEOUT_S))
    if ended.returncode != 0:
        said = ended.stdout.decode(errors="replace").strip()
        module.fail_json(
            msg="`%s` as %s exited with %d: %s" % (" ".join(words), account.pw_name, ended.returncode, said)
        )
    return ended.stdout.decode(errors="replace")


if __name__ == "__main__":
    main()
