"""Runs in the interpreter that would run the user's script, and prints what keeps the script from running.

It compiles the script, looks its imports up, and gives its words to the options that it declares by argparse. It runs
nothing of the user's, so what only running would show is not reported. It is sent as text (`python -c`), to a folder
that has the project's Python files, reads the questions from standard input, and prints one line: `script` and JSON.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import io
import json
import os
import sys
import warnings
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

# More is not read: a project of this size has its first imports in the first files.
_MOST_FILES = 200
_MOST_BYTES = 10_000_000
_TYPES = {"int": int, "float": float, "str": str}
_HARMLESS = ("set_defaults", "print_help", "format_help", "print_usage", "error", "exit", "get_default")
_GROUPS = ("add_argument_group", "add_mutually_exclusive_group")
_PARSER_KEYWORDS = ("description", "epilog", "prog", "usage", "formatter_class", "allow_abbrev", "add_help")
_LITERAL = ("action", "nargs", "required", "dest")
# Of little use without its value: an option with another choice or constant is still an option.
_DROPPED = ("default", "help", "metavar", "const", "choices", "type")


def problems_of(script: str, words: Optional[List[str]], imports: bool) -> Iterator[Dict[str, Any]]:
    """Yield the problems of the script, and of the project's modules that it is certain to import."""
    waiting = [script]
    seen: Set[str] = set()
    missing: List[Dict[str, Any]] = []
    changes_path = False
    while waiting and len(seen) < _MOST_FILES:
        file = waiting.pop(0)
        if file in seen:
            continue
        seen.add(file)
        try:
            if not os.path.isfile(file) or not os.path.getsize(file):  # one of the kernel's has no size
                continue
            with open(file, "rb") as stream:
                source = stream.read(_MOST_BYTES)
            compile(source, file, "exec", dont_inherit=True)
            tree = ast.parse(source)
        except OSError:
            continue
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            text = "%s: %s" % (type(error).__name__, getattr(error, "msg", error))
            yield {"kind": "syntax", "file": file, "line": line, "text": text}
            continue
        changes_path = changes_path or b"sys.path" in source or b"addsitedir" in source
        if file == script and words is not None:
            refusal = _refusal_of_words(tree, script, words)
            if refusal is not None:
                yield {"kind": "words", "file": file, "line": None, "text": refusal}
        for line, name in _imports(tree.body, is_main=file == script) if imports else ():
            at = _found(name.partition(".")[0])
            if at is None:
                missing.append({"kind": "module", "file": file, "line": line, "text": name.partition(".")[0]})
            elif at:
                waiting += _files_of(name, at)
    # A script that changes sys.path finds more than can be told from outside.
    if not changes_path:
        for one in missing:
            yield one


def _imports(body: List[ast.stmt], is_main: bool) -> Iterator[Tuple[int, str]]:
    """Yield the line and name of each import that certainly happens: none of a branch, a function or a `try`."""
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module
        elif isinstance(node, ast.If) and is_main and "__name__" in ast.dump(node.test):
            for pair in _imports(node.body, is_main):
                yield pair


def _found(name: str) -> Optional[str]:
    """Return the file of a module or package; empty if it has none or can't be told; None if there is none."""
    if name in sys.builtin_module_names:
        return ""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return ""
    return None if spec is None else spec.origin or ""


def _files_of(name: str, origin: str) -> Iterator[str]:
    """Yield the project's files that importing `name` runs, whose first part is in `origin`."""
    here = os.getcwd() + os.sep
    if not origin.startswith(here):
        return
    yield origin[len(here) :]
    folder = os.path.dirname(origin)
    for part in name.split(".")[1:]:
        folder = os.path.join(folder, part)
        for file in (folder + ".py", os.path.join(folder, "__init__.py")):
            if os.path.isfile(file):
                yield file[len(here) :]


def _refusal_of_words(tree: ast.Module, script: str, words: List[str]) -> Optional[str]:
    """Return why the script's own argparse would refuse its words; None if it takes them or can't be told."""
    parser = _parser_of(tree, os.path.basename(script))
    if parser is None:
        return None
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            parser.parse_args(words)
    except SystemExit as end:
        if end.code:
            return errors.getvalue().strip().rpartition("error: ")[2]
    except Exception:  # noqa: BLE001 - our copy of the parser is at fault, and says nothing about the script
        return None
    return None


def _parser_of(tree: ast.Module, prog: str) -> Optional[argparse.ArgumentParser]:
    """Return a parser with the options that the script declares; None unless all of them are written out."""
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _last(node.func) == "ArgumentParser"]
    named = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and node.value in made and isinstance(node.targets[0], ast.Name)
    ]
    if len(made) != 1 or len(named) != 1:
        return None
    if made[0].args or any(one.arg not in _PARSER_KEYWORDS for one in made[0].keywords):
        return None
    target = named[0].targets[0]
    names = {target.id} if isinstance(target, ast.Name) else set()
    calls: List[ast.Call] = []
    parses = False
    # Options in a branch or a loop may be there or not.
    unsure = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, (ast.For, ast.While, ast.Try))
        or (isinstance(node, ast.If) and "__name__" not in ast.dump(node.test))
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _last(node.value.func) in _GROUPS:
            names |= {one.id for one in node.targets if isinstance(one, ast.Name)}
    methods = {
        id(node.func.value): node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names):
            continue
        call = methods.get(id(node))
        method = None if call is None else _last(call.func)
        if call is None or method not in ("add_argument", "parse_args", *_GROUPS, *_HARMLESS):
            return None
        if method == "add_argument":
            if id(call) in unsure:
                return None
            calls.append(call)
        elif method == "parse_args":
            if call.args or call.keywords:
                return None
            parses = True
    parser = argparse.ArgumentParser(prog=prog)
    for call in sorted(calls, key=lambda one: (one.lineno, one.col_offset)):
        if not _added(parser, call):
            return None
    return parser if parses else None


def _last(function: ast.expr) -> Optional[str]:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def _added(parser: argparse.ArgumentParser, call: ast.Call) -> bool:
    """Add an option as the call declares it, and return whether that can be told."""
    keywords: Dict[str, Any] = {}
    try:
        flags = [ast.literal_eval(one) for one in call.args]
        for one in call.keywords:
            if one.arg in _LITERAL:
                if _last(one.value) == "BooleanOptionalAction":
                    keywords["action"] = getattr(argparse, "BooleanOptionalAction")  # noqa: B009 - from Python 3.9
                else:
                    keywords[one.arg] = ast.literal_eval(one.value)
            elif one.arg == "choices" and isinstance(one.value, (ast.List, ast.Tuple)):
                keywords["choices"] = ast.literal_eval(one.value)
            elif one.arg == "type" and _last(one.value) in _TYPES:
                keywords["type"] = _TYPES[str(_last(one.value))]
            elif one.arg not in _DROPPED:
                return False
        if "choices" in keywords and "type" not in keywords and any(one.arg == "type" for one in call.keywords):
            del keywords["choices"]
        if keywords.get("action") in ("store_const", "append_const"):
            keywords["const"] = True
        parser.add_argument(*flags, **keywords)
    except (ValueError, TypeError, AttributeError, argparse.ArgumentError):
        return False
    return True


def main(questions: Any) -> None:
    """Print the answer."""
    warnings.simplefilter("ignore")
    os.chdir("project")
    # With -c it is the working folder; for a script it is the script's.
    sys.path[0] = os.path.join(os.getcwd(), questions["path"])
    found = list(problems_of(questions["script"], questions["words"], questions["imports"]))
    version = "%d.%d" % sys.version_info[:2]
    sys.stdout.write("script %s\n" % json.dumps({"python": version, "executable": sys.executable, "problems": found}))


if __name__ == "__main__":
    main(json.load(sys.stdin))
