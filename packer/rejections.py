"""Why a row is not in the cache. The codes are part of the file format: they may be added to, never changed."""

CODES: dict[str, str] = {
    # read
    "not_utf8": "the row is not valid UTF-8, or holds half of a surrogate pair",
    "not_json": "the row is not valid JSON",
    "duplicate_key": "an object of the row has the same key twice, and nothing says which value counts",
    "row_too_large": "the row is larger than rows.max_bytes",
    # understood
    "unknown_schema": "the row has none of the fields its schema needs",
    "wrong_type": "a value has the wrong type; the reason holds its path",
    "unknown_role": "a message has a role the schema does not know",
    "bad_tools": "tools or a tool call cannot be read",
    "no_content": "a message says nothing under a name packer knows; the reason holds its keys",
    "empty": "the row has no messages, no text or no tokens",
    "multimodal": "the row holds images, audio or video, which packer does not do",
    "preference": "the row is a preference pair or a rated answer, not an example to imitate",
    # tokens of the row's own
    "no_labels": "the row brings its tokens, but nothing says which of them are trained",
    "lengths_differ": "labels, a mask or weights of the row are not as long as its input_ids",
    "labels_differ": "a label is neither -100 nor the id at its place",
    "labels_shifted": "the labels, or the mask, lie one token beside the tokens they are about",
    "bad_mask": "a mask holds something else than 0 and 1, or padding lies between tokens",
    "already_packed": "the row is several documents in one; packer packs documents itself",
    "unknown_token": "an id is not in the tokenizer's vocabulary",
    # rendered
    "template_error": "the chat template raised an error for this row",
    "render_too_large": "a rendering, or all texts of a rewritten history, are larger than rows.max_render_bytes",
    "prompt_diverges": "no prompt the template can write is continued by the turn it renders",
    "no_terminator": "the template writes no stop token after a turn",
    "bad_marks": "generation blocks of the template do not say which message they belong to",
    "dropped_system": "the template does not render a system message",
    "dropped_user": "the template does not render a user message",
    "dropped_content": "the template does not render the text of an assistant turn",
    "dropped_reasoning": "the template does not render the reasoning of an assistant turn",
    "dropped_tool_call": "the template does not render a tool call",
    "dropped_tool_result": "the template does not render a tool result",
    "dropped_tools": "the template does not render the tool definitions",
    "mangled_call": "a tool call cannot be read back from its rendering: it is escaped, changed, or JSON within JSON",
    "mangled_text": "a text or the tool definitions are not rendered as the row has them, but escaped (`&lt;`, `\\n`, "
    "U+FFFD), cut or changed",
    "open_reasoning": "an answer opens a block of reasoning and does not close it: it was cut off",
    "control_token": "an assistant turn, or under supervision.control_tokens=reject any message, holds the text of a "
    "control token",
    "control_render": "a control token typed in a message changes how the template renders the row",
    # supervised
    "nothing_trained": "the row has nothing to learn",
    "not_encodable": "the tokenizer fails on a text of the row",
    "proof_failed": "the ids do not spell the rendered text; nothing uncertain is written",
    # packed
    "overlong": "the document is longer than a block",
    "too_short": "the document, or the piece of one, is shorter than pack.min_length",
    "truncated": "the part of a document that is beyond the length of a block",
    "untrained": "a piece of a document, or a block of a stream, in which nothing is trained",
}
