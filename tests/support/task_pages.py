"""The pages of docs/how-to that lead from rows to a training loop, run as they stand on rows of any origin."""

import json
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
HOW_TO = REPOSITORY / "docs" / "how-to"
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)

FROM_ROWS = "from-rows.md"
"""It has a build for each kind of rows, then a loop for all of them."""


def python_of(page):
    """The Python of a page, in order."""
    return PYTHON.findall((HOW_TO / page).read_text("utf-8"))


def write_rows(path, rows):
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def qwen3_like(template):
    """The starter's template, with a reasoning block in the answers after the last question alone, be it empty."""
    last = (
        "{%- set place = namespace(last=-1) -%}{%- for message in messages -%}{%- if message.role == 'user' -%}"
        "{%- set place.last = loop.index0 -%}{%- endif -%}{%- endfor -%}"
    )
    condition = "message.role == 'assistant' and message.reasoning_content"
    assert condition in template
    written = template.replace(condition, "message.role == 'assistant' and loop.index0 > place.last")
    return last + written.replace("+ message.reasoning_content +", "+ (message.reasoning_content or '') +")


def small_model(folder, tokenizer, *, vocab_size, seed=0):
    """A model's folder as a page names it: YOUR_MODEL, tiny, with the files of a tokenizer."""
    import shutil

    import torch
    import transformers
    from tiny_models import tiny_config

    torch.manual_seed(seed)
    config = tiny_config(vocab_size=vocab_size, max_position_embeddings=8192)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    own = shutil.ignore_patterns("*.safetensors", "config.json", "generation_config.json")
    shutil.copytree(tokenizer, folder, dirs_exist_ok=True, ignore=own)


def builds_of(page):
    """The blocks of a page that build a cache, by the file of rows that each names first."""
    return {re.search(r'build\(\s*"([^"]+)"', code)[1]: code for code in python_of(page) if "packer.build(" in code}


def run_page(page, monkeypatch, blocks=None):
    """Run a page where one stands, or some of its blocks; the names it leaves.

    Blocks of a quarter, which take a CPU a sixteenth of the time, and a learning rate at which a few steps show.
    """
    import torch

    adam = torch.optim.AdamW
    monkeypatch.setattr(torch.optim, "AdamW", lambda parameters, lr: adam(parameters, lr=1e-2))
    names = {}
    for block in blocks or python_of(page):
        exec(compile(block.replace("4096", "1024"), page, "exec"), names)
    return names


def run_from_rows(rows, monkeypatch):
    """Run the build of the page for these rows, and its loop."""
    *_, loop = python_of(FROM_ROWS)
    return run_page(FROM_ROWS, monkeypatch, [builds_of(FROM_ROWS)[rows], loop])


def losses_of(printed):
    """The losses that a page's loop printed."""
    return [float(found) for found in re.findall(r"^step \d+: loss ([\d.]+)$", printed, re.MULTILINE)]
