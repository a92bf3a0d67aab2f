#!/usr/bin/python
"""One command of a role; when it fails, the message says what to do."""

from __future__ import annotations

DOCUMENTATION = r"""
module: step
short_description: Run one command, and explain its failure
options:
  argv: {type: list, elements: str, required: true, description: "The command, word by word; {python} is the interpreter that runs the module."}
  input: {type: str, default: "", description: What it reads from its standard input.}
  folder: {type: path, description: Folder to run in; it is made.}
  place: {type: path, description: Where it writes; a failure says when no room is left there.}
  cure: {type: str, default: "", description: What to do when it fails, where the output itself does not say.}
author: [trainjob]
"""
EXAMPLES = r"""
- name: Make the virtualenv
  step:
    argv: [python3.8, -m, venv, /opt/venvs/torch]
"""
RETURN = r"""
stdout: {type: str, returned: always, description: What it printed.}
value: {type: raw, returned: always, description: Its last line, where that is JSON.}
"""

import os
import shlex
import subprocess
import sys

from ansible.module_utils.basic import AnsibleModule

try:
    from ansible.module_utils import trainjob_cures as cures
    from ansible.module_utils import trainjob_output as reading
except ImportError:  # pragma: no cover - the unit tests put module_utils on the path
    import trainjob_cures as cures
    import trainjob_output as reading


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "argv": {"type": "list", "elements": "str", "required": True},
            "input": {"type": "str", "default": ""},
            "folder": {"type": "path"},
            "place": {"type": "path"},
            "cure": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(
            changed=True, stdout="", value=None, diff={"prepared": "+ %s\n" % shlex.join(module.params["argv"])}
        )
    asked = module.params
    argv = [word.replace("{python}", sys.executable) for word in asked["argv"]]
    try:
        code, stdout, stderr = _run(argv, asked["input"], asked["folder"])
    except OSError as error:
        module.fail_json(msg=cures.of_start(argv[0], error, asked["cure"]))
    if code != 0:
        cure = cures.of_room(asked["place"]) or asked["cure"]
        output = cures.of_output(shlex.join(argv), code, stdout, stderr, cure)
        module.fail_json(msg=output, rc=code, stdout=stdout, stderr=stderr)
    module.exit_json(changed=True, rc=0, stdout=stdout, value=reading.value(stdout))


def _run(argv, text, folder):
    if folder:
        os.makedirs(folder, exist_ok=True)
    ended = subprocess.run(
        argv, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, check=False
    )
    return ended.returncode, ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace")


if __name__ == "__main__":
    main()
