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

_PADDED = "batching='padded' with order='length_bucketed' pads little; 'token_budget' is for documents without padding"

_BY_NAME = "batching is one of 'packed', 'padded', 'padding_free', 'token_budget', or a Padded(...)"

_PAGER = "long output goes straight to the terminal; | less shows it by the page, FORCE_COLOR=1 … | less -R in color"

_MARKS = "leave it out: what a server would generate is trained, whatever a template marks"

_ALL_KEPT = "--fail-above 0 commits nothing if a row is rejected, or a token is in no block, and names the first row"

_ONE = "inspect shows any block, row or document: --block N, --row FILE:N, --doc ID, with --ids its ids"

_PAGED = ("check", "diff", "explain", "inspect", "lint", "preview", "stats")

_REFUSED = "it is template_refused, which says why in the words of a build"

_OF_ROWS = "packer lint FILE says what the template loses of the rows at hand, with a hint that was tried"

BLOCKS_OF_PAIRS: Final = "blocks of preference data"

BARE_DATASET_INFO: Final = "init --from of a dataset_info.json alone"

PREFERENCE_CONFIGURATION: Final = "init --from of preference data"

TEXT_CONFIGURATION: Final = "init --from of pre-training on texts"

_NAMED = "init --from takes a configuration with dataset: NAME,NAME and dataset_dir: the folder of dataset_info.json"

LANGUAGE: Final = "filters.language"

ZONE: Final = "split.zone"

MARKS: Final = "supervision.source"

BUDGET_OF_PADDED: Final = "read.batching: token_budget with padding"

WORKERS: Final = "a PackedLoader or StepDataset in workers of a DataLoader"
PIPED: Final = "--sources -"
RAY_CLIENT: Final = "--on ray://HOST:PORT"

WITHDRAWN: Final = {
    PIPED: "build from a file: what was piped in is not read again, and counts as not compared",
    RAY_CLIENT: "run the command on a machine of the cluster, with --on ray: ray job submit -- packer build …",
    MARKS: _MARKS,
    LANGUAGE: "write the language that a detector finds to a field of the rows: {name: german, field: lang, in: [de]}",
    ZONE: "a time that names no zone is in UTC; write other offsets into times and cutoffs: 2026-01-01T00:00:00+02:00",
    BARE_DATASET_INFO: _NAMED,
    BUDGET_OF_PADDED: _PADDED,
    WORKERS: "num_workers=0: DataLoader(StepDataset(loader), batch_size=None); the loader reads ahead in a thread",
    PREFERENCE_CONFIGURATION: "packer build FILE recognizes pairs and rated answers; sources.columns has other names",
    TEXT_CONFIGURATION: "packer build FILE --schema text --set pack.mode=stream packs texts as one stream",
    BLOCKS_OF_PAIRS: "the same build with --force keeps its documents, which readers batch padded or without padding",
    "order curriculum": _FUNCTION,
    "order weighted": _FUNCTION,
    "order windowed": _ALL_HERE,
    "Cache.open(cache_bytes=)": _ALL_HERE,
    "Cache.open(mmap=)": "copy the cache to a local disk: rows are read through memory maps of its files",
    "Mixture(schedule=)": _PHASES,
    "PACKER_CACHE_BYTES": _ALL_HERE,
    "PackedLoader(cache_bytes=)": _ALL_HERE,
    "PackedLoader(drop_last=)": "end='drop' leaves the rest of an epoch out, end='short' gives a smaller last step",
    "PackedLoader.set_micro_batch_size": "a loader that resumes from the state takes another micro_batch_size",
    "PackedLoader.set_shares": _PHASES,
    **{f"packer {command} --no-pager": _PAGER for command in _PAGED},
    "build(on_error=)": "fail_above=0 commits nothing if a row is rejected, or a token is in no block",
    "packer build --on-error": _ALL_KEPT,
    "packer build --profile": "--json has it, under profile",
    "packer build --share": "--on ray builds on many machines",
    "packer check --against": "decontaminate.against in a recipe; build --force keeps documents and lists such rows",
    "packer check --foreign": "build SOURCE... -o CACHE reads chats and prepared rows; then check CACHE --sources",
    "packer diff --documents": "diff names the first three rows; inspect --row FILE:N shows one in each cache",
    "packer diff --html": _LESS,
    "packer explain bad_marks": _MARKS,
    "packer explain bad_template": _REFUSED,
    "packer explain bos_missing": _NOTED,
    "packer explain default_system": _NOTED,
    "packer explain duplicate_key": "of a key that an object has twice, the last value counts",
    "packer explain header_learned": "it is an opening_learned",
    "packer explain marks_differ": _MARKS,
    "packer explain no_marks": _REFUSED,
    "packer explain prompt_modes": _NOTED,
    "packer explain reads_clock": "template.date is the date that a template writes",
    "packer explain shapes_rejected": _OF_ROWS,
    "packer explain split_marker": _REFUSED,
    "packer explain terminator": _NOTED,
    "packer export --documents": "documents are what it exports; --blocks exports blocks",
    "packer export --force": "remove the folder, or name a new one",
    "packer export --separate-mask": _OWN_FORMAT,
    "packer export --to mds": _OWN_FORMAT,
    "packer export --to megatron": _OWN_FORMAT,
    "packer export --to olmo": _OWN_FORMAT,
    "packer export --to trl": "PackedDPOTrainer and PackedKTOTrainer train the cache itself; --to datasets has pairs",
    "packer init --dataset": _NAMED,
    "packer init --schema": "packer explain recipe lists every key; a wrong one is an error that names it",
    "packer inspect --foreign": "packer preview PATH --tokenizer DIR shows prepared rows as a build would train them",
    "packer inspect --head": "| head shows the first lines",
    "packer inspect --order windowed": _ALL_HERE,
    "packer inspect --why": "--row shows the row with the reason, which names the row that it lost to",
    "packer lint --html": _LESS,
    "packer pack": _REBUILD,
    "packer preview --block-len": "build names the block lengths that keep all documents, if more than 1 % is lost",
    "packer push": _UPLOAD,
    "packer report --block": _ONE,
    "packer report --doc": _ONE,
    "packer report --rows": _ONE,
    "packer stats --foreign": "packer verify --foreign has its numbers",
    "packer stats --head": "| head shows the first lines",
    "packer stats --splits": "stats has a table of the splits, and what each rule leaves out",
    "packer verify --quick": "verify reads every byte; stats fails on a file that is missing or of another size",
    "packer view": f"packer report CACHE -o FILE writes the page; {_ONE}",
    "packer.load.Reference": _REFERENCE,
    "packer.load.trainers.BlockSource": "ten lines over Cache.open(folder).blocks(): docs/how-to/trainers/grain.md",
    "packer.load.trainers.PackedDataModule": "a LightningDataModule of your own: docs/how-to/trainers/lightning.md",
    "packer.load.batching.Packed": _BY_NAME,
    "packer.load.batching.PaddingFree": _BY_NAME,
    "packer.load.batching.TokenBudget": f"{_BY_NAME}; {_PADDED}",
    "packer.load.example_seed": 'random.Random(f"{seed} {doc_id} {epoch}") depends on the document alone',
    "packer.load.fill_reference": _REFERENCE,
    "packer.load.ordering.Curriculum": _FUNCTION,
    "packer.load.ordering.Weighted": _FUNCTION,
    "packer.load.ordering.Windowed": _ALL_HERE,
    "packer.load.read_reference": _REFERENCE,
    "packer.push_cache": _UPLOAD,
    "packer.repack_cache": _REBUILD,
}


OF_DATALOADERS: Final = {
    "PackedLoader(batch_size=)": "micro_batch_size is for a forward pass, global_batch_size for a step over all ranks",
    "PackedLoader(collate_fn=)": "batching says how rows become a batch; packer.load.collate is for a PackedDataset",
    "PackedLoader(num_workers=)": "prefetch=N reads N steps ahead, in a thread",
    "PackedLoader(pin_memory=)": "device='cuda' has steps on the device",
    "PackedLoader(shuffle=)": "order='random' shuffles every epoch, order='sequential' keeps the order of the blocks",
}
"""What a DataLoader calls otherwise; people type it first."""


def refuse_withdrawn(name: str) -> None:
    """Refuse a name of an earlier version, or of a DataLoader.

    Raises:
        UsageError: the name was withdrawn, or is another one here; the hint says what to use.
    """
    if name in OF_DATALOADERS:
        raise UsageError(f"{name} is an argument of a DataLoader", hint=OF_DATALOADERS[name])
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
