"""What a path that is no cache seems to be, and what to run on it."""

import shlex
from pathlib import Path

from packer.errors import InputError

_OF_TOKENS = {".bin", ".idx", ".npy"}
_OF_DATASETS = ("state.json", "dataset_info.json", "dataset_dict.json")


def not_a_cache(folder: Path, manifest_name: str) -> InputError:
    """The error of a path without a manifest; its hint fits what lies there."""
    return InputError(
        f"{folder} is not a cache, or its build did not finish: it has no {manifest_name}", hint=_hint(folder)
    )


def _hint(path: Path) -> str:
    named = shlex.quote(str(path))
    audit = f"packer verify --foreign {named}"
    if path.is_dir() and any((path / name).is_file() for name in _OF_DATASETS):
        return f"{audit} looks at rows another tool tokenized; packer build {named} --tokenizer DIR -o CACHE at others"
    if _holds_tokens(path):
        return f"{audit} looks at what another tool prepared"
    if path.is_file():
        return f"packer build {named} --tokenizer DIR -o CACHE"
    return f"packer build SOURCE... -o {named}"


def _holds_tokens(path: Path) -> bool:
    """Whether these are files of tokens: one, a prefix of a pair, or a folder of them."""
    if path.suffix in _OF_TOKENS and path.is_file():
        return True
    if path.is_dir():
        return any(next(path.glob(pattern), None) is not None for pattern in ("*.idx", "*token_ids*.npy"))
    return path.name != "" and path.with_name(f"{path.name}.idx").is_file()
