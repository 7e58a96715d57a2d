"""The way out of a rejection, as a hint."""

_HINTS = {
    "no_terminator": "--set supervision.no_terminator=append closes every turn with the EOS token",
    "prompt_diverges": "packer lint shows where prompt and turn part. --set supervision.divergent=continue goes on "
    "inside the reasoning a prompt opens; =common_prefix takes what both have in common as the prompt",
    "control_token": "--set supervision.control_tokens=allow takes them as ordinary text",
    "unknown_schema": "name the schema: schema: messages | sharegpt | alpaca | completion | text",
}


def rejection_hint(code: str) -> str:
    """What to do about rows rejected with a code of :data:`packer.rejections.CODES`."""
    if code.startswith("dropped_"):
        inline = (
            "--set supervision.reasoning=inline puts it into the text, in <think> tags; "
            if code == "dropped_reasoning"
            else ""
        )
        return f"{inline}--set supervision.allow_dropped=[{code.removeprefix('dropped_')}] builds without it"
    return _HINTS.get(code, "docs/reference/rejections.md explains every code")
