"""A training configuration of LLaMA-Factory, with its `dataset_info.json`, as a recipe.

Read from LLaMA-Factory 0.9.5.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packer.errors import RecipeError
from packer.recipe_from.dataset_info import read_entries
from packer.recipe_from.places import Places
from packer.recipe_from.source_files import SourceFiles
from packer.recipe_from.told import Keys, Ledger
from packer.recipe_from.training_keys import is_training_key

INFO_FILE = "dataset_info.json"

_CUTOFF_LEN = 2048
"""What LLaMA-Factory takes where nothing is said."""

_SAVED = "packer takes the tokenizer as it is saved: save it with these tokens, and name that folder"

_NO_WORD = {
    "buffer_size": "packer reads every row once, in order; the loader orders blocks",
    "data_shared_file_system": "packer builds once; every rank reads the same cache",
    "data_seed": "the order of reading has its own: seed= of PackedLoader",
    "default_system": "packer adds no message: it stands in the rows or in the template",
    "enable_thinking": "each answer is learned under the prompt it continues; template.kwargs fixes one for all",
    "image_max_pixels": "packer reads no pictures, films or sound",
    "interleave_probs": "proportions are a matter of reading: Mixture of several caches",
    "media_dir": "packer reads no pictures, films or sound",
    "new_special_tokens": _SAVED,
    "add_tokens": _SAVED,
    "add_special_tokens": _SAVED,
    "overwrite_cache": "packer sees by content what is up to date",
    "preprocessing_batch_size": "packer reads in batches of a thousand rows",
    "preprocessing_num_workers": "-j of packer build",
    "reserved_label_len": "see cutoff_len",
    "seed": "the order of reading has its own: seed= of PackedLoader; pack.seed deals documents to blocks",
    "tokenized_path": "the cache is -o of packer build; packer export --to datasets writes such a folder",
    "tool_format": "tools and calls are rendered by the chat template",
    "video_max_pixels": "packer reads no pictures, films or sound",
}

_AS_HERE = {
    "eval_on_each_dataset": (
        (False,),
        "evaluation rows are one split of the cache; a split can be named for each source",
    ),
    "ignore_pad_token_for_loss": ((True,), "padding is never trained"),
    "mix_strategy": (
        ("concat",),
        "packer takes every row once; proportions are a matter of reading: Mixture of several caches",
    ),
    "preserve_thinking": ((False,), "what of a history's reasoning is rendered is the chat template's"),
    "streaming": ((False,), "packer prepares all rows before training"),
    "train_on_prompt": ((False,), "packer trains answers alone; a text that is trained throughout is schema text"),
    "trust_remote_code": ((False, True), "packer runs no code of a model"),
    "use_fast_tokenizer": ((True,), "packer reads tokenizer.json, which is the fast one"),
    "val_size": (
        (0,),
        "packer draws no rows for evaluation: name them as a source of their own with split: validation",
    ),
}
"""Settings that packer has no word for, the values that are what it does anyway, and what to say of others."""


def read_llamafactory(
    config: Mapping[str, Any], places: Places, ledger: Ledger, *, load: Callable[[Path], Mapping[str, Any]]
) -> dict[str, Any]:
    """Values of a recipe; what is not in them is in the ledger.

    Args:
        config: Of a training.
        places: `bases` are where LLaMA-Factory is started, and the folder of the configuration.
        ledger: Told what is not carried over.
        load: Reads a file as a mapping.

    Raises:
        RecipeError: it is no supervised training, or its data sets are not to be found.

    """
    keys = Keys(config, ledger)
    stage = keys.text("stage") or "sft"
    if stage not in ("sft", "pt"):
        raise RecipeError(
            f"stage: {stage}: packer prepares supervised training and pre-training, not preferences or rewards",
            hint="its sources are rows with answers to be learned: stage sft or pt",
        )
    sources = _sources(keys, places, ledger, load=load, texts=stage == "pt")
    for key, (same, says) in _AS_HERE.items():
        keys.expect(key, same, says)
    keys.tell_each(_NO_WORD)
    if keys.take("template") is not None:
        keys.tell(
            "template",
            "LLaMA-Factory's own; packer takes the tokenizer's chat template, or template.file: see packer preview",
        )
    model, revision = keys.text("model_name_or_path"), keys.text("model_revision")
    recipe = {
        "sources": sources,
        "tokenizer": None if model is None else places.model(model, None if revision == "main" else revision),
        "supervision": {"turns": "last"} if keys.take("mask_history") else {},
        "pack": _pack(keys, texts=stage == "pt"),
    }
    keys.tell_rest(is_training=is_training_key)
    return recipe


def _sources(
    keys: Keys, places: Places, ledger: Ledger, *, load: Callable[[Path], Mapping[str, Any]], texts: bool
) -> list[dict[str, Any]]:
    asked = keys.text("dataset_dir") or "data"
    folder = places.find(asked)
    if folder is None or not (folder / INFO_FILE).is_file():
        raise RecipeError(
            f"dataset_dir: {asked}: no {INFO_FILE} there; looked from {' and '.join(map(str, places.bases))}",
            hint="run this where LLaMA-Factory is started, or give the file itself: --from …/dataset_info.json",
        )
    info = load(folder / INFO_FILE)
    inner = replace(places, bases=(folder,), absolute=Path(asked).is_absolute())  # its files lie beside it
    most = keys.number("max_samples")
    limit = {} if most is None else {"limit": most}
    files = SourceFiles(target=places.target)
    sources = []
    for key, shared in (("dataset", limit), ("eval_dataset", {"split": "validation", **limit})):
        sources += read_entries(info, names_of(keys.texts(key)), inner, ledger, files, shared=shared, texts=texts)
    several = [path for path in dict.fromkeys(source["path"] for source in sources) if files.are_several([path])]
    if several:
        keys.tell("max_samples", f"of each entry there; packer's limit counts for each file of {', '.join(several)}")
    return sources


def names_of(texts: Iterable[str] | None) -> list[str]:
    """Names that are written with commas between them, or as a list."""
    return [name.strip() for text in texts or () for name in text.split(",") if name.strip()]


def _pack(keys: Keys, *, texts: bool) -> dict[str, Any]:
    length, packing, neat = keys.take("cutoff_len"), keys.take("packing"), keys.take("neat_packing")
    pack: dict[str, Any] = {"block_len": length or _CUTOFF_LEN}
    if length is None:
        keys.tell("cutoff_len", "what LLaMA-Factory takes where nothing is said", default=_CUTOFF_LEN)
    if texts and packing is not False:
        return {**pack, "mode": "stream"}  # texts are joined and cut, as its pre-training does
    if not packing and not neat:
        keys.tell(
            "packing", "documents without blocks, which a loader pads; to pack: --set pack.mode=isolated", default=False
        )
        keys.tell("cutoff_len", "without packing documents keep their length; LLaMA-Factory cuts longer ones")
        return {**pack, "mode": "none"}
    keys.tell(
        "cutoff_len",
        "LLaMA-Factory cuts long prompts and answers, each by its share; packer cuts the document's end",
    )
    if not neat:
        keys.tell("packing", "documents of a block see each other, as there; positions run on; neat_packing: isolated")
    return {**pack, "mode": "isolated" if neat else "eos", "overlong": "truncate_right"}
