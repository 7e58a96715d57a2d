"""Chat templates by name, for tokenizers that come without one: `--template chatml`.

Each starts with the tokenizer's BOS if it has one, and ends every answer with a token at which generation can
stop. They write messages but no tools: a model that calls tools has a template of its own.
"""

from pathlib import Path

NAMED_TEMPLATES = {
    "chatml": "`<|im_start|>user` … `<|im_end|>`",
    "llama-3": "`<|start_header_id|>user<|end_header_id|>` … `<|eot_id|>`",
    "gemma": "`<start_of_turn>user` … `<end_of_turn>`; the system message opens the user's",
    "zephyr": "`<|user|>` … EOS",
    "plain": "`### User:` in words, and the EOS after each answer: for tokenizers without tokens for roles",
}
"""What each template writes around a message, by name."""


def template_path(name: str) -> Path:
    """Return the file of one of the :data:`NAMED_TEMPLATES`."""
    return Path(__file__).parent / f"{name}.jinja"
