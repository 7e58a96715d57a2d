"""Recipes for families of models: what their templates need, so that rows of several turns build at the first try."""

from textwrap import fill
from typing import NamedTuple


class Family(NamedTuple):
    """A family of models."""

    says: str
    """What is particular about its template, for the head of the recipe."""

    keys: str
    """Keys of the recipe, as YAML with comments."""


FAMILIES: dict[str, Family] = {
    "qwen3": Family(
        "Its template shows earlier answers without their reasoning, or without the empty block in its place.",
        """\
supervision:
  # Every answer is learned; earlier ones as the template shows them later on. Answers with reasoning that it takes out
  # get a document of their own, as inference asks for them. `last` learns the end of each conversation alone.
  history_rewrite: as_rendered
""",
    ),
    "llama-3": Family(
        "Llama 3.1's template takes one tool call a message, and drops text beside a call.",
        """\
# supervision:
#   allow_dropped: [content]   # rows with text beside a call are learned without the text; without this, rejected
""",
    ),
    "mistral": Family(
        "Its templates take ids of tool calls of 9 letters and digits alone.",
        """\
rows:
  call_ids: short
""",
    ),
    "gemma": Family(
        "Its turns end with <end_of_turn>, which is not the EOS of its tokenizer. Gemma 2 takes no system message.",
        """\
supervision:
  stop: ["<end_of_turn>"]
""",
    ),
    "phi-3": Family(
        "Its turns end with <|end|>, which is not the EOS of its tokenizer. Its template takes no tools.",
        """\
supervision:
  stop: ["<|end|>"]
""",
    ),
    "phi-4": Family(
        "Its turns end with <|im_end|>. Its template takes no tools.",
        """\
supervision:
  stop: ["<|im_end|>"]
""",
    ),
    "gpt-2": Family(
        "It has no chat template, and no tokens for roles: `plain` writes them in words and ends answers with the EOS.",
        """\
template:
  name: plain
""",
    ),
}
"""Name → what a recipe for it says."""


def family_recipe(name: str) -> str:
    """The recipe of a family of :data:`FAMILIES`, as a file."""
    family = FAMILIES[name]
    return (
        f"{fill(f'Chats for {name}. {family.says}', 98, initial_indent='# ', subsequent_indent='# ')}\n"
        "#\n"
        "#   packer build -c recipe.yaml FILE... --tokenizer FOLDER -o cache\n"
        "#\n"
        "# `packer explain recipe` lists every key. Only what differs from the defaults stands here.\n"
        "\n"
        "version: 1\n"
        "\n"
        "# Or name them here, relative to this file:\n"
        "# sources:\n"
        "#   - path: data/*.jsonl\n"
        "# tokenizer: FOLDER\n"
        "\n"
        f"{family.keys}"
        "\n"
        "pack:\n"
        "  block_len: 4096\n"
    )
