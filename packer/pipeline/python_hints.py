"""Hints as a call from Python writes them: ``pack={"block_len": 8192}`` for ``--set pack.block_len=8192``.

Hints are written for the command line, where most are read. Whole commands stay as they are.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from packer.errors import PackerError
from packer.strict_yaml import parse_yaml

_KEY = re.compile(r"--set (?P<quote>'?)(?P<path>[\w.]+)=(?P<value>\{[^}]*\}|\[[^\]]*\]|[^\s',;]+)(?P=quote)")
_FLAGS = (
    (re.compile(r"--block-len (\w+)"), r'pack={"block_len": \1}'),
    (re.compile(r"--(template|tokenizer|schema|split|on-error) (\w[\w./-]*)"), r'\1="\2"'),
    (re.compile(r"--(force|repair)\b"), r"\1=True"),
    (re.compile(r"--jobs (\w+)|(?<![\w-])-j (\w+)"), r"jobs=\1\2"),
    (re.compile(r"\bon-error="), "on_error="),
    (re.compile(r"(?<![\w-])-o(?= another)"), "`out` in"),
    (re.compile(r"(?<![\w-])-o(?= )"), "`out`"),
)


@contextmanager
def python_hints() -> Iterator[None]:
    """Rewrite the hint of an error that is raised in the body."""
    try:
        yield
    except PackerError as error:
        if error.hint is not None:
            before, error.hint = error.hint, in_python(error.hint)
            error.__notes__ = [note.replace(before, error.hint) for note in error.__notes__]
        raise


def in_python(hint: str) -> str:
    """A hint with keyword arguments in place of options.

    Example:
        >>> in_python("--set pack.overlong=split cuts documents; --force replaces it")
        'pack={"overlong": "split"} cuts documents; force=True replaces it'

    """
    if re.search(r"\bpacker [a-z]+ ", hint):
        return hint
    hint = _KEY.sub(_argument, hint)
    for pattern, argument in _FLAGS:
        hint = pattern.sub(argument, hint)
    return hint


def _argument(found: re.Match[str]) -> str:
    parents, _, key = found["path"].rpartition(".")
    value = _literal(parse_yaml(found["value"], found[0]))
    if parents in ("", "sources"):  # keys of all sources are arguments of their own
        return f"{key}={value}"
    for name in (key, *reversed(parents.split(".")[1:])):
        value = f'{{"{name}": {value}}}'
    return f"{parents.split('.')[0]}={value}"


def _literal(value: object) -> str:
    """As Python writes it, with the quotation marks of the documentation."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(key)}: {_literal(item)}' for key, item in value.items())}}}"
    return f"[{', '.join(map(_literal, value))}]" if isinstance(value, list) else repr(value)
