"""What the options that a hint names set, read from its text as a shell reads them, or as Python reads arguments."""

import ast
import re
import shlex
from contextlib import suppress
from typing import Any

from packer.recipe.named_options import NAMED_OPTIONS, as_setting

_OPTION = re.compile(rf"--(set|{'|'.join(NAMED_OPTIONS).replace('_', '-')}) ((?:'[^']*'|\"[^\"]*\"|[^\s;'\"])+)")


def settings_in(hint: str) -> list[str]:
    """What a hint of a command sets, as `KEY=VALUE`, but for what is to be filled in."""
    found = [(name.replace("-", "_"), shlex.split(word.rstrip(",:."))[0]) for name, word in _OPTION.findall(hint)]
    found = [(name, text) for name, text in found if text != "N" and "FIELD" not in text]
    return [text if name == "set" else as_setting(name, text) for name, text in found]


def arguments_in(hint: str) -> dict[str, Any]:
    """The first arguments that a hint of `packer.build` names."""
    begin = re.search(r"(?<!\S)[a-z_]+=", hint)
    assert begin is not None, hint
    for end in range(len(hint), begin.start(), -1):
        with suppress(SyntaxError):
            call = ast.parse(f"dict({hint[begin.start() : end]})", mode="eval").body
            assert isinstance(call, ast.Call)
            return {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    raise AssertionError(hint)
