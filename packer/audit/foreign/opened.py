"""Which form lies at a path, by its files."""

import shlex
from pathlib import Path

from packer.audit.foreign.arrow import datasets_parts, is_datasets_folder
from packer.audit.foreign.dataset import ForeignPart
from packer.audit.foreign.megatron import MegatronPart, megatron_pairs, megatron_prefix
from packer.audit.foreign.olmo import OlmoPart, olmo_files
from packer.errors import InputError
from packer.model import Model
from packer.store.manifest import MANIFEST_NAME


def open_foreign(path: Path, model: Model | None) -> tuple[str, tuple[ForeignPart, ...]]:
    """The form at a path, and its parts.

    Raises:
        InputError: nothing that is understood lies there, or it cannot be read.

    """
    if is_datasets_folder(path):
        return "datasets", datasets_parts(path)
    pairs = megatron_pairs(path)
    prefix = pairs[0] if len(pairs) == 1 else megatron_prefix(path)
    if prefix is not None:
        return "megatron", (MegatronPart(prefix),)
    files = olmo_files(path)
    if files:
        vocab_size, eos_id = (None, None) if model is None else (model.vocab_size, model.eos_id)
        alone = len(files) == 1
        parts = [OlmoPart(file, "" if alone else file.name, vocab_size=vocab_size, eos_id=eos_id) for file in files]
        return "olmo", tuple(parts)
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if (path / MANIFEST_NAME).is_file():
        raise InputError(f"{path} is a cache, and not what another tool prepared", hint=f"packer verify {path}")
    if any(next(path.glob(pattern), None) is not None for pattern in ("*.mds", "*/*.mds")):
        raise InputError(
            f"{path} holds .mds files, which an audit does not read",
            hint="packer verify CACHE checks the cache they were exported from",
        )
    if pairs:
        raise InputError(
            f"{path} holds {len(pairs)} pairs of .bin and .idx; an audit reads one at a time",
            hint=f"packer verify --foreign {shlex.quote(str(pairs[0]))}",
        )
    raise InputError(
        f"{path} is nothing an audit reads",
        hint="a folder of save_to_disk, the prefix of a .bin and .idx, a .npy or a folder of token_ids*.npy",
    )
