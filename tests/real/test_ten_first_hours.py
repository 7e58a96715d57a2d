"""Ten first hours: real rows of ten shapes under eight tokenizers, from one command to a loss that falls.

Each begins with what a person types who has read nothing: the rows, the tokenizer, the folder. Where that ends in an error, the first
option that its hint names is added as it is printed, and nothing else.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import run

pytest.importorskip("torch", reason="TORCH MISSING: first hours do not end in training")
pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: first hours do not end in training")

import torch
from tiny_models import tiny_model

from packer import PackedLoader
from packer.load.adapters import huggingface
from packer.store.manifest import read_manifest
from packer_cli.main import cli

pytestmark = pytest.mark.real


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstHour:
    rows: str
    tokenizer: str
    template: str | None = None
    kept: float = 1.0
    """At least this share of the rows."""

    num_errors: int = 0
    """Met on the way."""

    typed: tuple[str, ...] = ()
    """What a person knows of their rows and types at once."""


MISTRAL = "llamacpp__mistralai-Mistral-Nemo-Instruct-2407.jinja"
HOURS = (
    FirstHour(rows="llamafactory/alpaca_en_demo.json", tokenizer="llama-3"),
    FirstHour(rows="formats/fastchat_dummy_conversation.json", tokenizer="qwen3"),
    FirstHour(rows="kdconv_zh_devtest.jsonl", tokenizer="qwen3", num_errors=1),
    FirstHour(rows="sgd_train_tools_600.jsonl", tokenizer="minimind"),
    FirstHour(rows="reason_tool_use_openai_50.jsonl", tokenizer="qwen3"),
    FirstHour(rows="gsm8k_1319.jsonl", tokenizer="gpt-2", num_errors=2),
    FirstHour(rows="llamafactory/v1_sft_demo.jsonl", tokenizer="llama-2"),
    FirstHour(rows="hh_harmless_test_messages.jsonl", tokenizer="deepseek-coder", kept=0.99),
    FirstHour(rows="formats/swift_alpaca.csv", tokenizer="phi-3"),
    FirstHour(
        rows="llamafactory/glaive_toolcall_zh_demo.json",
        tokenizer="minimind",
        template=MISTRAL,
        typed=("--set", "rows.call_ids=short"),  # as a build without it says
        kept=0.99,
    ),
)
OPTION = re.compile(r"--(?:template|set|schema|block-len) (?:'(?:[^']|'\\'')*'|[^\s;,]+)")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*no trained token among their first")
@pytest.mark.parametrize("hour", HOURS, ids=lambda hour: f"{Path(hour.rows).stem}-{hour.tokenizer}")
def test_a_first_hour_ends_in_a_loss_that_falls(hour: FirstHour, real: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = ["build", real / "corpora" / hour.rows, "--tokenizer", real / "tokenizers" / hour.tokenizer, *hour.typed]
    command += [] if hour.template is None else ["--template", real / "templates" / hour.template]
    errors = follow([*map(str, command), "-o", str(cache)])
    totals = read_manifest(cache).totals
    print(
        f"{1 + len(errors)} commands, {totals.kept} of {totals.rows} rows kept {totals.rejected}", *errors, sep="\n  "
    )
    assert totals.kept >= hour.kept * totals.rows > 0
    assert len(errors) == hour.num_errors
    run("verify", cache, "--reencode", "--sample", "20")
    losses = trained(cache)
    assert losses[-1] < losses[0]


def follow(command: list[str]) -> list[str]:
    """Type a command until it works; the first line of each error met."""
    errors: list[str] = []
    for _ in range(5):
        typed = CliRunner(env={"COLUMNS": "80"}).invoke(cli, command)
        if typed.exit_code == 0:
            return errors
        errors.append(typed.stderr.partition("error: ")[2].splitlines()[0])
        hint = typed.stderr.partition("\nhint: ")[2].replace("\n", " ")
        found = OPTION.search(hint)
        assert found is not None, typed.output
        command = [*command, *(" ".join(word.split()) for word in shlex.split(found[0]))]
    raise AssertionError(errors)


def trained(cache: Path) -> list[float]:
    """Losses of a few steps over one document, by a tiny model; cut, because logits of 151,669 ids for 4,096 tokens are 2 GB."""
    loader = PackedLoader(cache, batching="padding_free", cutoff_len=1024)
    step = next(iter(loader))
    vocab_size = int(max(batch["input_ids"].max() for batch in step)) + 1
    model = tiny_model(dtype=torch.float32, vocab_size=vocab_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(4):
        loss = sum(model(**huggingface(batch, num_items_in_batch=step.num_items_in_batch)).loss for batch in step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
