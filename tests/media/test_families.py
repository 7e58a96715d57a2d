"""Families of models that see, tiny and random: padded and packed documents with images have the losses and gradients
of the processor's own batches.

`python tests/media/test_families.py` prints the table.
"""

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from families_that_see import FAMILIES, family_folder, family_model
from image_models import answer, picture, user, with_pixels, write_rows
from torch.utils._pytree import tree_map_only

import packer
from packer.errors import InputError, UsageError
from packer.load import PackedLoader
from packer.load.adapters import huggingface, model_arguments, packed_positions, rope_index_of
from packer.load.poison import refuse_leaks
from packer.media.processor import processor_of

pytestmark = pytest.mark.filterwarnings("ignore")

CHATS = [
    [user("@0.png", "What is this?"), answer("A ramp.")],
    [user("@1.png", "@2.png", "Compare."), answer("Both are ramps.")],
    [user("Hello"), answer("Hi, how are you?")],
]


def cache_of(name: str, folder: Path) -> Path:
    family_folder(FAMILIES[name], folder / "model")
    for number, size in enumerate([(60, 90), (120, 40), (64, 64)]):
        (folder / f"{number}.png").write_bytes(picture(*size, seed=number))
    rows = write_rows(folder / "rows.jsonl", [{"messages": chat} for chat in CHATS])
    packer.build(
        str(rows),
        folder / "cache",
        tokenizer=str(folder / "model"),
        media={"images": "read"},
        pack={"block_len": 512, "max_pixels": 10**7},
        progress=None,
        jobs=1,
    )
    return folder / "cache"


def micro_batches(cache: Path, **options: Any) -> list[dict[str, Any]]:
    with PackedLoader(cache, order="sequential", prefetch=0, **options) as loader:
        return [micro_batch for step in loader for micro_batch in step]


def in_float(batch: dict[str, Any]) -> dict[str, Any]:
    return tree_map_only(torch.Tensor, lambda each: each.float() if each.is_floating_point() else each, dict(batch))


def summed(model: Any, batch: dict[str, Any], labels: Any) -> Any:
    logits = model(**{name: value for name, value in in_float(batch).items() if name != "labels"}).logits
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")


def learned(model: Any, losses: Any) -> tuple[float, Any]:
    """The sum of losses, and its gradient as one vector."""
    model.zero_grad()
    loss = sum(losses)
    loss.backward()
    grads = [(torch.zeros_like(each) if each.grad is None else each.grad).flatten() for each in model.parameters()]
    return loss.item(), torch.cat(grads)


def unrefused(model: Any, micro_batch: dict[str, Any]) -> dict[str, Any]:
    """A model's arguments as they are for families that pack, to see whether those that are refused still go wrong."""
    made = {name: value for name, value in micro_batch.items() if name != "document_ids"} | {"use_cache": False}
    if (rope_index := rope_index_of(model)) is not None:
        made["position_ids"] = packed_positions(micro_batch, rope_index)
    return made


def outcomes(name: str, folder: Path) -> dict[str, str] | None:
    """`exact`, `wrong` or `refused` (with whether it would be wrong) for each batching; None without the processor."""
    try:
        cache = cache_of(name, folder)
    except InputError as error:
        if "needs" in str(error) or "cannot be loaded" in str(error):
            return None
        raise
    processor = processor_of({file.name: file.read_bytes() for file in (folder / "model").iterdir()})
    own = processor.own
    sizes = [(30 + 97 * number % 600, 5 + 61 * number % 300) for number in range(40)]
    assert [processor.replacements([size]) for size in sizes] == [processor._replacements((size,)) for size in sizes]
    if name == "SmolVLM":  # it asks for it in every conversation
        own.video_processor.num_frames = own.video_processor.fps = 1
    model = family_model(FAMILIES[name], own.tokenizer.convert_tokens_to_ids, len(own.tokenizer) + 8)

    def alone() -> Any:
        documents = micro_batches(cache, batching="padded", images=False)
        for chat, document in zip(CHATS, documents, strict=True):
            shown = with_pixels(chat, folder)
            batch = own.apply_chat_template(shown, tokenize=True, return_dict=True, return_tensors="pt")
            labels = torch.full_like(batch["input_ids"], -100)
            labels[:, : document["labels"].shape[1]] = document["labels"]
            yield summed(model, batch, labels)

    expected, gradient = learned(model, alone())

    def said(batches: list[dict[str, Any]], adapted: Any) -> str:
        try:
            loss, found = learned(model, (summed(model, adapted(each), each["labels"]) for each in batches))
        except ValueError:  # transformers itself refuses
            return "wrong"
        is_same = abs(loss - expected) < 1e-4 * expected and (found - gradient).norm() < 1e-3 * gradient.norm()
        return "exact" if is_same else "wrong"

    def is_refused(adapted: Any) -> bool:
        (batch,) = micro_batches(cache, batching="padding_free", micro_batch_size=3)
        with PackedLoader(cache, batching="padding_free", prefetch=0) as loader:
            try:
                refuse_leaks(model, lambda each: in_float(adapted(each)), batch, loader.images, name=name)
            except (UsageError, ValueError):  # or transformers itself refuses
                return True
        return False

    def unknown(each: dict[str, Any]) -> dict[str, Any]:
        is_packed = "cu_seq_lens_q" in each and "pixel_values" in each
        return unrefused(model, each) if is_packed else huggingface(each, **model_arguments(model))

    model.config.save_pretrained(folder / "model")
    told = processor_of({file.name: file.read_bytes() for file in (folder / "model").iterdir()}).wrong_when_packed
    assert (told is not None) == (name in PADDED)  # which a build into blocks says

    # What packer does not know is found by a trainer's own test, before the first step.
    assert is_refused(unknown) == (name in PADDED)
    results = {}
    for batching in ("padded", "padding_free", "packed"):
        batches = micro_batches(cache, batching=batching, micro_batch_size=1 if batching == "packed" else 3)
        try:
            results[batching] = said(batches, lambda each: huggingface(each, **model_arguments(model)))
        except UsageError:
            results[batching] = f"refused, {said(batches, lambda each: unrefused(model, each))}"
    return results


PADDED = {"Gemma 3", "Gemma 4, large", "Qwen3.5"}
"""Families whose packed images transformers 5.23 gets wrong, as a trainer would find if the adapter did not refuse them."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_padded_rows_are_exact_and_packed_ones_are_exact_or_refused_and_wrong(name, tmp_path):
    found = outcomes(name, tmp_path)
    if found is None:
        pytest.skip(f"{name.upper()} IS NOT TESTED: its processor needs a library that is not installed")
    packed = "refused, wrong" if name in PADDED else "exact"
    assert found == {"padded": "exact", "padding_free": packed, "packed": packed}


def test_the_page_names_every_family():
    text = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "images.md").read_text("utf-8")
    assert all(name.partition(",")[0] in text for name in FAMILIES)


def main() -> None:
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    print(f"{'':18}padded          padding_free    packed")
    for name in sys.argv[1:] or FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            found = outcomes(name, Path(folder))
        said = ["no processor here"] if found is None else found.values()
        print(f"{name:18}" + "".join(f"{each:16}" for each in said), flush=True)


if __name__ == "__main__":
    main()
