"""Schema `alpaca`: an instruction, optionally an input and reasoning, and the output.

ms-swift calls the fields `query` and `response`, and Dolly calls the input `context`.
"""

from typing import Any

from packer.batches import Message, Sample
from packer.source.chat import chat_sample, with_reasoning_fields
from packer.source.decode import Refused, coalesce_aliases
from packer.source.file_bytes import quoted
from packer.source.message_parts import is_setting
from packer.source.row import RowFields, RowSchema, typed_row
from packer.source.unsupported_rows import refuse_media_tags


class AlpacaRow(RowFields, frozen=True, kw_only=True):
    instruction: str | None = None
    query: str | None = None
    input: str | None = None
    context: Any = None
    output: str | None = None
    response: str | None = None
    reasoning: str | None = None
    """The reasoning of the last answer."""

    history: list[tuple[str, str]] | None = None


def read(row: dict[str, Any], number: int) -> Sample:
    """``{"instruction": "…", "input": "…", "output": "…", "reasoning": "…", "history": [["asked", "answered"], …]}``"""
    shape = typed_row(row, AlpacaRow)
    instruction = coalesce_aliases({"instruction": shape.instruction, "query": shape.query}, where="$")
    output = coalesce_aliases({"output": shape.output, "response": shape.response}, where="$")
    assert instruction is not None, "rows without it do not get here"
    assert output is not None, "rows without it do not get here"
    given = shape.input or (shape.context if isinstance(shape.context, str) else None)
    question = f"{instruction}\n{given}" if instruction and given else instruction or given
    if not question:
        raise Refused("empty", "`instruction` and `input` are both empty")
    exchanges = [*(shape.history or ()), (question, output)]
    messages = []
    for asked, answered in exchanges:
        refuse_media_tags(asked, is_asked=True)
        refuse_media_tags(answered)
        messages.append(Message(fields={"role": "user", "content": asked}))
        messages.append(Message(fields={"role": "assistant", "content": answered}))
    if shape.reasoning:
        if is_setting(shape.reasoning):
            raise Refused(
                "wrong_type",
                f"`reasoning` is {quoted(shape.reasoning)}, which is a setting, not reasoning; "
                "`columns: {reasoning: null}` leaves it out",
            )
        refuse_media_tags(shape.reasoning)
        messages[-1] = Message(fields=with_reasoning_fields(messages[-1].fields, shape.reasoning))
    return chat_sample(row, shape, messages, number=number)


SCHEMA = RowSchema(
    needs=(("instruction", "query"), ("output", "response")),
    rows=(AlpacaRow,),
    read=read,
    help="`instruction`, `input`, `output`; also `query`/`response`, `context` (in place of `input`), `reasoning` "
    "(becomes the `reasoning_content` of the last answer), `system`, `history`",
    is_templated=True,
    json_fields=("history",),
)
