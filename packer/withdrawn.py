"""What this version withdrew, each with what takes its place. Every error about it comes from this one table.

A name is what people type: a command, a command with an option or with the option's value, a name to import, a call
with an argument, a variable of the environment; or what a cache of an earlier version has.
"""

from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from packer.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")

_REFERENCE = "TRL does: DPOConfig(precompute_ref_log_probs=True); in a loop, answer_logps of the reference model"

_UPLOAD = 'hf upload ORG/NAME CACHE --repo-type dataset --delete "*" puts it on the Hub, in one commit'

_LESS = "-v prints everything, --json has everything"

_NOTED = "packer preview shows where an answer begins and ends, and what is trained"

_OWN_FORMAT = "--to datasets writes rows with input_ids and labels; the trainer's own library makes its files from them"

_REBUILD = "packer build with another --block-len and --force reuses every document"

_FUNCTION = "order takes a function of the epoch that gives row numbers; packer.load.ordering.weighted(weights) is one"

_ALL_HERE = "a disk with room for the split, named by cache_dir; its shards are fetched before the first step"

_PHASES = "a mixture has fixed proportions; a phase of training with others is a loader of its own"

BLOCKS_OF_PAIRS: Final = "blocks of preference data"

WITHDRAWN: Final = {
    BLOCKS_OF_PAIRS: "the same build with --force keeps its documents, which readers batch padded or without padding",
    "order curriculum": _FUNCTION,
    "order weighted": _FUNCTION,
    "order windowed": _ALL_HERE,
    "Cache.open(cache_bytes=)": _ALL_HERE,
    "Cache.open(mmap=)": "copy the cache to a local disk: rows are read through memory maps of its files",
    "Mixture(schedule=)": _PHASES,
    "PACKER_CACHE_BYTES": _ALL_HERE,
    "PackedLoader(cache_bytes=)": _ALL_HERE,
    "PackedLoader(columns=)": "packer.load.attention has document_ids and masks of a micro-batch",
    "PackedLoader(drop_last=)": "end='drop' leaves the rest of an epoch out, end='short' gives a smaller last step",
    "PackedLoader.set_micro_batch_size": "a loader that resumes from the state takes another micro_batch_size",
    "PackedLoader.set_shares": _PHASES,
    "packer.load.ordering.Curriculum": _FUNCTION,
    "packer.load.ordering.Weighted": _FUNCTION,
    "packer.load.ordering.Windowed": _ALL_HERE,
    "packer build --share": "--on ray builds on many machines",
    "packer check --foreign": "build SOURCE... -o CACHE reads chats and prepared rows; then check CACHE --sources",
    "packer diff --documents": "diff names the first three rows; inspect --row FILE:N shows one in each cache",
    "packer diff --html": _LESS,
    "packer explain bos_missing": _NOTED,
    "packer explain default_system": _NOTED,
    "packer explain duplicate_key": "of a key that an object has twice, the last value counts",
    "packer explain header_learned": "it is an opening_learned",
    "packer explain marks_differ": "supervision.source: generation_tags trains by the marks",
    "packer explain reads_clock": "template.date is the date that a template writes",
    "packer explain terminator": _NOTED,
    "packer lint --html": _LESS,
    "packer view": "packer report CACHE -o FILE writes the page; --rows, --block and --doc choose what it holds",
    "packer export --separate-mask": _OWN_FORMAT,
    "packer export --to mds": _OWN_FORMAT,
    "packer export --to megatron": _OWN_FORMAT,
    "packer export --to olmo": _OWN_FORMAT,
    "packer inspect --order windowed": _ALL_HERE,
    "packer inspect --why": "--row shows the row with the reason, which names the row that it lost to",
    "packer stats --foreign": "packer verify --foreign has its numbers",
    "packer pack": _REBUILD,
    "packer.repack_cache": _REBUILD,
    "packer push": _UPLOAD,
    "packer.push_cache": _UPLOAD,
    "packer.load.Reference": _REFERENCE,
    "packer.load.example_seed": 'random.Random(f"{seed} {doc_id} {epoch}") depends on the document alone',
    "packer.load.fill_reference": _REFERENCE,
    "packer.load.read_reference": _REFERENCE,
}


def refuse_withdrawn(name: str) -> None:
    """Refuse a name of an earlier version.

    Raises:
        UsageError: the name was withdrawn; the hint says what to use.
    """
    if name in WITHDRAWN:
        raise UsageError(f"{name} was withdrawn", hint=WITHDRAWN[name])


def withdraws(function: Callable[P, T]) -> Callable[P, T]:
    """Refuse arguments of an earlier version that are passed by name, such as ``PackedLoader(cache_bytes=)``."""
    name = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> T:
        for option in options:
            refuse_withdrawn(f"{name}({option}=)")
        return function(*args, **options)

    return checked
