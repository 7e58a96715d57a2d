"""The way out of a rejection, as a hint."""

from collections.abc import Iterable

_HINTS = {
    "no_terminator": "--set supervision.no_terminator=append closes every turn with the EOS token",
    "prompt_diverges": "packer lint shows where prompt and turn part. --set supervision.on_prompt_mismatch=continue "
    "goes on inside the reasoning a prompt opens; =common_prefix takes what both have in common as the prompt",
    "control_token": "rows that were rendered already are no rows for packer: give the messages, or take the markers "
    "out; --set supervision.control_tokens=allow learns the letters of a marker as text, never the token",
    "mangled_call": "packer lint shows what the template writes; take `|safe` or a second `tojson` out of it, or "
    "write each argument with `tojson`, which sets texts between quotation marks",
    "mangled_text": "packer lint shows what the template writes; correct where it escapes, cuts or replaces text, or "
    "use another template",
    "open_reasoning": "an answer that was cut off teaches a model to end inside its reasoning: leave it out, or give "
    "its message train: false",
    "unknown_schema": "name the schema: schema: messages | sharegpt | alpaca | completion | text | tokens",
    "no_content": "a message keeps its text under `content`, or `value` in ShareGPT; rename the key that holds it: "
    "jq -c '.messages[] |= (.content //= .text)' FILE. --set rows.empty_user=keep keeps user messages that are empty",
    "no_labels": "name the field that says what is trained: --set 'sources.columns={loss_mask: NAME}'; "
    "--set 'sources.columns={input_ids: input_ids, labels: input_ids}' trains every token",
    "lengths_differ": "each list has an entry a token; a mask of the response alone needs `response_length`",
    "labels_differ": "labels are the ids themselves, and -100 where nothing is learned",
    "labels_shifted": "labels and masks are wanted as they are before a model shifts them for its loss; where a mask "
    "leaves out stop tokens on purpose, give labels in its place",
    "already_packed": "give the rows as they were before they were packed",
    "unknown_token": "give the tokenizer that the ids were made with, its added tokens among them",
}


def rejection_hint(code: str, *, allowed: Iterable[str] = ()) -> str:
    """What to do about rows rejected with a code of :data:`packer.rejections.CODES`.

    Args:
        code: why they were rejected.
        allowed: kinds of losses that `supervision.allow_dropped` names already, or must name for the sake of other
            rows: the key is set as a whole, so that the hint keeps them.

    """
    if code.startswith("dropped_"):
        inline = (
            "--set supervision.reasoning=inline puts it into the text, in <think> tags; "
            if code == "dropped_reasoning"
            else ""
        )
        kinds = dict.fromkeys((*allowed, code.removeprefix("dropped_")))
        return f"{inline}--set 'supervision.allow_dropped=[{','.join(kinds)}]' builds without it"
    return _HINTS.get(code, "docs/reference/rejections.md explains every code")
