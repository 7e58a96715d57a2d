"""What differing fingerprints mean, in a sentence."""

from collections.abc import Sequence

from packer.audit.diff.report import DocumentsDiff, InputsDiff, ModelDiff, RecipeDiff, SoftwareDiff

_NAMES = {"rules": "rules", "inputs": "inputs", "model": "tokenizer or template", "engine": "engine"}


def causes_of(
    recipe: RecipeDiff | None, inputs: InputsDiff | None, model: ModelDiff | None, software: SoftwareDiff | None
) -> tuple[str, ...]:
    """What of the recipe's identity differs; places, names and versions of software are not of it.

    How inputs are read (`sources[0].limit`) counts as inputs: their entries in the manifest tell what came of it.
    """
    rules = recipe is not None and any(not change.key.startswith("sources[") for change in recipe.rules)
    changed = inputs is not None and (inputs.reordered or any(entry.kind != "renamed" for entry in inputs.changed))
    found = {
        "rules": rules,
        "inputs": changed,
        "model": model is not None and bool(model.files),
        "engine": software is not None and bool(software.engine),
    }
    return tuple(name for name, differs in found.items() if differs)


def meaning_of(
    *,
    same_bytes: bool,
    same_content: bool,
    same_recipe: bool,
    documents: Sequence[DocumentsDiff],
    causes: Sequence[str],
) -> str:
    """The sentence, without a full stop."""
    if same_bytes:
        return "the same bytes"
    if same_content and same_recipe:
        return "the same data by the same recipe; names, places or versions in the manifest differ"
    data = "the same data" if same_content else _data(documents)
    if same_recipe:
        return f"{data} by the same recipe, which should not be: the versions of software may tell why"
    return f"{data} by another recipe: {_other(causes)}"


def _data(documents: Sequence[DocumentsDiff]) -> str:
    if not documents:
        return "the same documents in other blocks"
    if not any(entry.only_old or entry.only_new for entry in documents):
        return "the same documents in another order, or of other rows"
    return "other documents"


def _other(causes: Sequence[str]) -> str:
    if not causes:
        return "nothing in it differs that this version of packer knows of"
    return f"other {', '.join(_NAMES[cause] for cause in causes)}"
