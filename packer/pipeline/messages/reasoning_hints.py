"""What hints about reasoning ask of rows, and the form in which they try it."""

from dataclasses import replace

from msgspec import structs

from packer.batches import RowBatch, Sample
from packer.render.reasoning import reasoning_of, split_inline, with_reasoning_as

IN_FIELD = (
    "give reasoning under `reasoning_content`, without tags: --set supervision.reasoning=inline then writes it in "
    "<think> tags"
)


def reasons(batch: RowBatch) -> bool:
    """Whether each row has reasoning, in its field or before an answer."""
    fields = [[each.fields for each in sample.all_messages] for sample in batch.samples]
    return all(any(reasoning_of(each) or split_inline(each.get("content")) for each in own) for own in fields)


def has_foreign_tags(sample: Sample, template: str) -> bool:
    """Whether an answer begins with a tag of reasoning that neither the template nor the row's own prompt has.

    The letters of such a tag would be learned. OpenThoughts asks for its `<|begin_of_thought|>` in the system message.
    """
    fields = [each.fields for each in sample.messages]
    told = "\0".join([template, *(str(each.get("content")) for each in fields if each["role"] != "assistant")])
    blocks = (split_inline(each.get("content")) for each in fields if each["role"] == "assistant")
    return any(block is not None and block.opening not in told for block in blocks)


def with_fields(batch: RowBatch) -> RowBatch:
    """Return rows with their reasoning in fields, without tags."""
    samples = [
        structs.replace(
            sample,
            messages=tuple(
                structs.replace(each, fields=with_reasoning_as(each.fields, "field")) for each in sample.messages
            ),
        )
        for sample in batch.samples
    ]
    return replace(batch, samples=tuple(samples))
