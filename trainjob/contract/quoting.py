"""The one place that quotes: for shell bodies, and for `#SBATCH` lines, which Slurm parses itself."""

from __future__ import annotations

import re
import shlex

from trainjob.contract.errors import UserError
from trainjob.contract.paths import USER_DATA

_PLAIN_DIRECTIVE = re.compile(r"[A-Za-z0-9_./:=,+@%\[\]~*^-]+\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_OPTION = re.compile(r"[a-z][a-z0-9-]*\Z")
# What csh or fish reads otherwise between single quotes: line breaks, ! and backslashes.
_READ_OTHERWISE = re.compile(r"[\x01-\x1f\x7f'!\\]")
# A word of BSD's csh may have 1023 bytes; no sign takes more than five.
_WORDS_OF_CSH = re.compile(r"(?s)(?:\\0[0-7]{3}|.){1,200}")
# Linux takes 128 KiB as one argument or as one NAME=VALUE: a little is left for the name.
_LONGEST_BYTES = 127 * 1024
# slurmctld refuses longer values (its job_mgr.c), but for lists of nodes and jobs.
_LONGEST_DIRECTIVE_BYTES = 1024
_LISTS = ("nodelist", "exclude", "dependency")


class Shell(str):
    """Finished shell: the environment prints it as it stands. Everything else is quoted.

    Joining it to other text gives plain text again, which is quoted when printed.
    """

    __slots__ = ()

    def __html__(self) -> str:
        """Return the text as it stands: Jinja's way to ask whether a value is finished."""
        return str(self)


class QuotingError(UserError):
    """A value that the place it goes to cannot carry."""

    code = "quoting"


def word(value: object) -> Shell:
    """Return `value` as one shell word that expands to exactly its text.

    Raises QuotingError for what no argument can carry: NUL, text that is not Unicode, more than 127 KiB.
    """
    if isinstance(value, Shell):
        return value
    text = str(value)
    _refuse_what_no_argument_carries(text)
    # sbatch takes a script that holds a carriage return and a line break in a row for a DOS file, and refuses it.
    quoted = shlex.quote(text).replace("\r", "'$'\\r''")
    # A reader, and shellcheck, takes `export X==1` for a comparison.
    return Shell(f"'{quoted}'" if quoted.startswith("=") else quoted)


def path(value: str) -> Shell:
    """Return a path as one shell word; a leading `~/` means the home of the user who runs the script.

    A leading `$XDG_DATA_HOME/` means that user's data folder, whether the variable is set or not.
    """
    if value.startswith(USER_DATA + "/"):
        return Shell(f'"${{XDG_DATA_HOME:-$HOME/.local/share}}"{word(value[len(USER_DATA) :])}')
    if value == "~" or value.startswith("~/"):
        rest = value[1:]
        return Shell(f'"$HOME"{word(rest) if rest else ""}')
    return word(value)


def for_any_shell(line: str) -> Shell:
    """Return a command with which every login shell (bash, csh, fish) has sh run `line`.

    Raises QuotingError for what no argument can carry.
    """
    text = _READ_OTHERWISE.sub(lambda sign: "\\0%03o" % ord(sign.group()), line)
    words = " ".join("'%s'" % word for word in _WORDS_OF_CSH.findall(text))
    _refuse_what_no_argument_carries(words)
    return Shell('exec sh -c \'eval "$(printf %%b "$@")"\' sh %s' % words)


def with_job_id(pattern: str) -> Shell:
    """Return a name as one shell word in which the job's id takes the place of %j, as in the names sbatch reads."""
    parts = (word(part) if part else "" for part in pattern.split("%j"))
    return Shell('"$SLURM_JOB_ID"'.join(parts))


def _refuse_what_no_argument_carries(text: str) -> None:
    if "\x00" in text:
        raise QuotingError(f"{text!r} holds a NUL character, which no argument can carry", "take it out")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise QuotingError(f"{text!r} is not valid Unicode text", "write it in UTF-8") from None
    if size > _LONGEST_BYTES:
        raise QuotingError(
            f"{text[:40]!r}… has {size} bytes and one argument or value may have {_LONGEST_BYTES}",
            "pass a file instead",
        )


def one_line(text: str) -> str:
    """Return `text` for a comment, which a line break would end: control characters become question marks."""
    return _CONTROL.sub("?", text)


def visible(text: str) -> str:
    """Return `text` on one line: signs that a terminal would not show, such as line breaks, are written out."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def directive(option: str, value: str | int | bool) -> Shell | None:
    """Return one `#SBATCH` line; a bare flag for True, None for False.

    Slurm's own parser reads these lines, and the shell's rules do not hold: inside double quotes a backslash takes the
    next character as it is, and nothing else is special. Raises QuotingError for control characters, leading dashes
    and empty text.
    """
    if not _OPTION.match(option):
        raise QuotingError(f"directive {option!r}", "an sbatch option is written in lower case, as in job-name")
    if isinstance(value, bool):
        return Shell(f"#SBATCH --{option}") if value else None
    text = str(value)
    _refuse_what_no_argument_carries(text)
    where = f"directive {option}: {text!r}"
    if not text.strip():
        raise QuotingError(f"{where} is empty", "leave the key out, or give true for a bare flag")
    if _CONTROL.search(text):
        raise QuotingError(
            f"{where} holds a line break or control character, which ends an #SBATCH line", "take it out"
        )
    size = len(text.encode())
    if size > _LONGEST_DIRECTIVE_BYTES and option not in _LISTS:
        where = f"directive {option}: {text[:40]!r}…"
        raise QuotingError(f"{where} has {size} bytes and Slurm takes {_LONGEST_DIRECTIVE_BYTES}", "shorten it")
    if text.startswith("-"):
        raise QuotingError(f"{where} begins with a dash and would be read as an option", "write it without")
    quoted = '"%s"' % re.sub(r'(["\\])', r"\\\1", text)
    return Shell(f"#SBATCH --{option}={text if _PLAIN_DIRECTIVE.match(text) else quoted}")
