"""What is said of a recipe's keys: their help, in two lists that ship beside this module, and options of their own.

Some keys have an option on the command line, and an argument of `packer.build`. It says nothing that its key does not:
`--columns output=answer` is `--set 'sources.columns={output: answer}'`. Hints name keys as `KEY=VALUE`, and
:func:`as_option` and :func:`in_python` write them for whoever reads the hint.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer.errors import RecipeError
from packer.recipe import ROW_SCHEMAS


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedOption:
    """A key with an option of its own."""

    key: str
    metavar: str
    help: str
    example: str | None = None
    """Of a key whose value is a mapping: pairs `NAME=VALUE,...`, which are read as one."""


_COLUMNS, _ROLES = "instruction=Question,output=Answer", "client=user,counselor=assistant"

NAMED_OPTIONS = {
    "columns": NamedOption(
        key="sources.columns",
        metavar="FIELD=NAME,...",
        example=_COLUMNS,
        help=f"What fields of the schema are called in the rows: {_COLUMNS}. FIELD=null hides a field.",
    ),
    "roles": NamedOption(
        key="sources.roles",
        metavar="NAME=ROLE,...",
        example=_ROLES,
        help=f"What roles in the rows mean: {_ROLES}.",
    ),
    "limit": NamedOption(key="sources.limit", metavar="N", help="Only the first N rows of each file."),
    "history": NamedOption(
        key="supervision.history_rewrite",
        metavar="exact|last|as_rendered",
        help="How to train answers that the template changes later [exact; a build asks if that doubles the tokens].",
    ),
    "block_len": NamedOption(key="pack.block_len", metavar="N", help="Tokens per block [4096]."),
}

_YAML_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def flow_mapping(names: Mapping[str, str | None]) -> str:
    """Return names as a YAML mapping in one line.

    Example:
        >>> flow_mapping({"instruction": "my question", "input": None})
        '{instruction: "my question", input: null}'
    """
    return f"{{{', '.join(f'{_yaml(new)}: {_yaml(old)}' for new, old in names.items())}}}"


def _yaml(name: str | None) -> str:
    if name is None or (re.fullmatch(r"[^\W\d][\w.]*", name) and name.lower() not in _YAML_WORDS):
        return name or "null"
    shown = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in name)
    return f'"{shown}"'


def as_setting(name: str, text: str) -> str:
    """Return the `KEY=VALUE` that an option means: its text is YAML, or pairs `NAME=VALUE,...`.

    Example:
        >>> as_setting("columns", "instruction=Question,output=Answer")
        'sources.columns={instruction: Question, output: Answer}'
    """
    option = NAMED_OPTIONS[name]
    if option.example is not None and not text.lstrip().startswith("{"):
        pairs = _pairs(text)
        if pairs is None:
            message = f"--{name} {text}: expected {option.metavar}, each name once"
            raise RecipeError(message, hint=f"for example --{name} {option.example}")
        text = flow_mapping(pairs)
    return f"{option.key}={text}"


def _pairs(text: str) -> dict[str, str | None] | None:
    """Return the names in `NAME=VALUE,...`; None if it is something else."""
    found: dict[str, str | None] = {}
    for pair in text.split(","):
        name, _, value = map(str.strip, pair.partition("="))
        if not name or not value or name in found:
            return None
        found[name] = None if value == "null" else value
    return found


def as_option(setting: str) -> str:
    """Return the option of a command that sets `KEY=VALUE`, as it is typed in a shell.

    Example:
        >>> as_option("sources.columns={instruction: my question, input: null}")
        "--columns 'instruction=my question,input=null'"
        >>> as_option("pack.overlong=split")
        '--set pack.overlong=split'
    """
    key, _, text = setting.partition("=")
    name = next((name for name, option in NAMED_OPTIONS.items() if option.key == key), None)
    if name is None:
        return f"--set {shlex.quote(setting)}"
    if text.startswith("{"):
        names = _value(text, key)
        pairs = ",".join(f"{new}={'null' if old is None else old}" for new, old in names.items())
        is_plain = pairs.isprintable() and not pairs.startswith("{") and not pairs.endswith((".", ":"))
        if is_plain and _pairs(pairs) == names:
            text = pairs
    return f"--{name.replace('_', '-')} {shlex.quote(text)}"


def as_word(text: str) -> str:
    """Return a text as a word of a command, in quotes also if it ends as a clause of a hint does.

    Example:
        >>> as_word("notes"), as_word("Claude:"), as_word("<cot>...</cot>")
        ('notes', "'Claude:'", "'<cot>...</cot>'")
    """
    word = shlex.quote(text)
    return f"'{word}'" if word.endswith((",", ":", ".")) else word


_FLAGS = ("force", "repair", "dry-run")
_WORD = r"""(?:'[^']*'|"[^"]*"|\\.|[^\s;'"\\()])+(?<![,:.])"""

_BEGIN = r"(?<![^\s(])"
_OF_SOURCES = "|".join(name for name, option in NAMED_OPTIONS.items() if option.key.startswith("sources."))
_OF_ALL_SOURCES = re.compile(
    f"{_BEGIN}(?:--(?:set|schema|{_OF_SOURCES}) {_WORD}|--ignore {_WORD}(?: --ignore {_WORD})*)"
)
_OF_ONE = re.compile(r"(?<!\S)(--set '?sources)\[\d+\]")
_ALSO_OF_ALL = "; `sources.` in place of `sources[N].` is for all of them"
_OF_ALL_IN_PYTHON = "; an argument applies to all sources: a recipe sets it for one, below its `path`"


def of_one_source(hint: str, number: int, ignored: Iterable[str]) -> str:
    """Return a hint with keys of one source in place of options that would set them for all.

    Example:
        >>> of_one_source("--columns output=answer --ignore notes; --history last", 1, ["id"])
        "--set 'sources[1].columns={output: answer}' --set 'sources[1].ignore=[id, notes]'; --history last"
    """

    def of_one(found: re.Match[str]) -> str:
        try:
            name, word, *more = shlex.split(found[0])
            if name == "--ignore":
                setting = f"sources.ignore=[{', '.join(map(_yaml, (*ignored, word, *more[1::2])))}]"
            elif name == "--schema":
                setting = f"sources.schema={word}"
            else:
                setting = word if name == "--set" else as_setting(name.removeprefix("--"), word)
        except (RecipeError, ValueError):  # a field has the name of an option
            return found[0]
        key, dot, rest = setting.partition(".")
        return as_option(f"{key}[{number}].{rest}") if dot and key == "sources" else found[0]

    return _OF_ALL_SOURCES.sub(of_one, hint)


def also_of_all(hint: str) -> str:
    """Add to a hint with keys of one source how they are set for all."""
    return hint + _ALSO_OF_ALL * (_OF_ONE.search(hint) is not None)


def in_python(hint: str, arguments: Iterable[str]) -> str:
    """Return a hint with arguments of a function in place of options; whole commands stay as they are.

    Example:
        >>> in_python("--set pack.overlong=split --columns output=answer reads it; --force replaces it", ["columns"])
        "pack={'overlong': 'split'}, columns={'output': 'answer'} reads it; force=True replaces it"
    """
    hint = _OF_ONE.sub(r"\1", hint.replace(_ALSO_OF_ALL, _OF_ALL_IN_PYTHON))
    names = "|".join(name.replace("_", "-") for name in ("set", *arguments))
    one = rf"--(?:(?:{names}) {_WORD}|(?:{'|'.join(_FLAGS)})\b)"
    parts = hint.replace("-o another folder", "another `out`").replace("-j ", "--jobs ").split("; ")
    called = (
        part if "packer build" in part else re.sub(rf"{_BEGIN}{one}(?: {one})*", _arguments, part) for part in parts
    )
    return re.sub(rf"(?<=`)--(?=(?:{names})`)", "", "; ".join(called))


def _arguments(found: re.Match[str]) -> str:
    """Return the arguments for some options; the options themselves if they are not what they look like."""
    values: dict[str, Any] = {}
    try:
        words = iter(shlex.split(found[0]))
        for word in words:
            name = word.removeprefix("--").replace("-", "_")
            if name == "ignore":
                values.setdefault(name, []).append(next(words))
                continue
            *groups, last = [name]
            text = "true" if word.removeprefix("--") in _FLAGS else next(words)
            if name == "set":
                key, _, text = text.partition("=")
                *groups, last = key.removeprefix("sources.").split(".")
            elif name in NAMED_OPTIONS:
                text = as_setting(name, text).partition("=")[2]
            target = values
            for group in groups:
                target = target.setdefault(group, {})
            target[last] = _value(text, name)
    except (RecipeError, ValueError):
        return found[0]
    return ", ".join(f"{name}={value if value == 'N' else repr(value)}" for name, value in values.items())


def _value(text: str, key: str) -> Any:
    from packer.recipe.strict_yaml import parse_yaml  # noqa: PLC0415 - not for --help

    return parse_yaml(text, key)


def recipe_keys() -> str:
    """Return a YAML recipe with every key, its default, and its possible values in a comment."""
    text = Path(__file__).with_name("recipe_keys.yaml").read_text("utf-8")
    return text.replace("ROW_SCHEMAS", " | ".join(ROW_SCHEMAS))


def key_values() -> dict[str, dict[str, str]]:
    """Return what the values of keys train and cost; `EXAMPLE` is a value of a key that takes any."""
    name = "key_values.yaml"
    found: dict[str, dict[str, str]] = _value(Path(__file__).with_name(name).read_text("utf-8"), name)
    return found
