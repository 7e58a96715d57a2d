"""The codes of `packer lint` with their levels, and findings of a code."""

from packer.audit.findings import Code, CodedFinding, Example, Severity

CODES: dict[str, Code] = {
    # no row, or no plain chat, can be built
    "template_refused": Code("error", "a build refuses the template before its first row, and says why"),
    "no_template": Code("error", "the tokenizer has no chat template, so rows of messages cannot be built"),
    "plain_chat_refused": Code(
        "error", "a question and an answer would be rejected, so no chat can be built; the message has the code"
    ),
    # something is lost, or something unexpected is trained
    "rows_rejected": Code("warning", "some of the rows examined are rejected; an error if all are"),
    "rows_unread": Code("warning", "rows have text that nothing reads; a build stops until you map it or ignore it"),
    "opening_learned": Code(
        "warning", "every answer opens with text of the template, which is trained: a header, an empty reasoning block"
    ),
    "history_rewritten": Code(
        "warning", "earlier answers change when a conversation continues, at a price; a note if the recipe has chosen"
    ),
    "tokenizer_read_otherwise": Code(
        "warning", "transformers 5 gives a chat other ids than tokenizer.json does, because of its tokenizer_class"
    ),
}
"""Code → level and meaning, in the order of a report."""


def finding(
    code: str,
    message: str,
    *,
    examples: tuple[Example, ...] = (),
    hint: str | None = None,
    level: Severity | None = None,
) -> CodedFinding:
    """Make a finding. `level` overrides the level of the code: what the recipe asks for is only a note.

    A `--set` in a hint has been tried, and does what the hint says.
    """
    return CodedFinding(
        code=code, message=message, examples=examples, hint=hint, level=CODES[code].level if level is None else level
    )
