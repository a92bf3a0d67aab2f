#!/usr/bin/python
"""A folder that is built beside, checked, and only then put in place by a link; older builds stay until asked."""

from __future__ import annotations

DOCUMENTATION = r"""
module: build
short_description: Look at, finish or prune the builds behind a path
description:
  - C(path) is a link to C(path.builds/ID), where ID is a digest of what was asked for. A build counts as installed when
    its marker says the same C(identity) and its C(health) command succeeds.
options:
  path: {type: path, required: true, description: The link that users name.}
  identity: {type: dict, default: {}, description: Everything that makes one build differ from another.}
  health: {type: list, elements: str, default: [], description: "Command that succeeds in a good build; {folder} is the build."}
  health_input: {type: str, default: "", description: What the health command reads from its standard input.}
  state: {type: str, choices: [looked, cleared, finished, pruned], default: looked, description: What to do.}
  folder: {type: path, description: The build to finish.}
author: [trainjob]
"""
EXAMPLES = r"""
- name: Read what is installed
  build:
    path: /opt/venvs/torch
    identity: {torch: 2.13.0}
    health: ["{folder}/bin/python", -c, import torch]
"""
RETURN = r"""
installed: {type: bool, returned: always, description: Whether the marker matches and the build is healthy.}
why: {type: str, returned: always, description: What was found.}
folder: {type: str, returned: always, description: The build in place, or the folder to build in.}
current: {type: str, returned: with state=looked, description: "The build in place, whatever it was made of."}
about: {type: raw, returned: always, description: What the health command printed, where it is JSON.}
"""

import shutil
import subprocess

from ansible.module_utils.basic import AnsibleModule

try:
    from ansible.module_utils import trainjob_builds as builds
    from ansible.module_utils import trainjob_output as reading
except ImportError:  # pragma: no cover - the unit tests put module_utils on the path
    import trainjob_builds as builds
    import trainjob_output as reading


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "identity": {"type": "dict", "default": {}},
            "health": {"type": "list", "elements": "str", "default": []},
            "health_input": {"type": "str", "default": ""},
            "state": {"type": "str", "choices": ["looked", "cleared", "finished", "pruned"], "default": "looked"},
            "folder": {"type": "path"},
        },
        supports_check_mode=True,
    )
    act = {"looked": _look, "cleared": _clear, "finished": _finish, "pruned": _prune}[module.params["state"]]
    try:
        module.exit_json(**act(module))
    except builds.BuildError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=builds.explained(error, module.params["path"]))


def _look(module):
    asked = module.params
    builds.refuse_foreign(asked["path"])
    found = builds.current(asked["path"])
    before = builds.identity_of(found)
    why, about = _judge(module, found, before)
    installed = why is None
    if not installed:
        builds.refuse_unwritable(asked["path"])
    return {
        # A look changes nothing; in check mode it stands for the build that would follow.
        "changed": module.check_mode and not installed,
        "installed": installed,
        "current": found or "",
        "why": why or "already there, and healthy",
        "folder": found if installed else builds.next_folder(asked["path"], asked["identity"]),
        "about": about,
        "diff": {"before": builds.shown(before), "after": builds.shown(asked["identity"])} if not installed else {},
    }


def _judge(module, folder, identity):
    """Return why the build in `folder` is not the one asked for (None: it is), and what its health check said."""
    if folder is None:
        return "not there yet", None
    if identity != builds.plain(module.params["identity"]):
        return "something else was asked for before", None
    code, output = _health(module, folder)
    return (None, reading.value(output)) if code == 0 else ("its health check fails: %s" % reading.tail(output), None)


def _health(module, folder):
    asked = module.params
    if not asked["health"]:
        return 0, ""
    argv = [word.replace("{folder}", folder) for word in asked["health"]]
    try:
        ended = subprocess.run(
            argv,
            input=asked["health_input"].encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except OSError as error:
        return 1, "%s can't be started: %s" % (argv[0], error.strerror)
    return ended.returncode, ended.stdout.decode(errors="replace")


def _clear(module):
    cut = builds.leftovers(module.params["path"])
    if not module.check_mode:
        builds.clear(module.params["path"])
    return {"changed": bool(cut), "removed": cut}


def _finish(module):
    asked = module.params
    code, output = _health(module, asked["folder"])
    if code != 0:
        raise builds.BuildError("%s was built, and its health check fails: %s" % (asked["path"], reading.tail(output)))
    builds.finish(asked["path"], asked["folder"], asked["identity"])
    return {
        "changed": True,
        "installed": True,
        "why": "built",
        "folder": asked["folder"],
        "about": reading.value(output),
    }


def _prune(module):
    old = builds.older(module.params["path"])
    if not module.check_mode:
        for folder in old:
            shutil.rmtree(folder)
    return {"changed": bool(old), "removed": old, "why": "%d older builds" % len(old)}


if __name__ == "__main__":
    main()
