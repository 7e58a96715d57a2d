"""Ten first hours: real rows of ten shapes under eight tokenizers, from one command to a loss that falls.

Each begins with what a person types who has read nothing: the rows, the tokenizer, the folder. Where that ends in an error or a warning,
the first option that it names is added as it is printed, and nothing else; at the end the command that `next:` names is typed, too.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from command_line import run

pytest.importorskip("torch", reason="TORCH MISSING: first hours do not end in training")
pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: first hours do not end in training")

import torch
from tiny_models import tiny_model

from packer import Cache, PackedLoader
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

    errors: int = 0
    warnings: int = 0
    """Met on the way, each followed by one more command."""


MISTRAL = "llamacpp__mistralai-Mistral-Nemo-Instruct-2407.jinja"
STARTER = "starter"
"""The tokenizer that `packer init` writes."""

HOURS = (
    FirstHour(rows="llamafactory/alpaca_en_demo.json", tokenizer="llama-3"),
    FirstHour(rows="formats/fastchat_dummy_conversation.json", tokenizer=STARTER),
    FirstHour(rows="kdconv_zh_devtest.jsonl", tokenizer="qwen3", errors=1),
    FirstHour(rows="sgd_train_tools_600.jsonl", tokenizer="minimind", errors=1),
    FirstHour(rows="reason_tool_use_openai_50.jsonl", tokenizer="qwen3", kept=0.96),
    FirstHour(rows="gsm8k_1319.jsonl", tokenizer="gpt-2", errors=1),
    FirstHour(rows="llamafactory/v1_sft_demo.jsonl", tokenizer="llama-2"),
    FirstHour(rows="hh_harmless_test_messages.jsonl", tokenizer="deepseek-coder", kept=0.99),
    FirstHour(rows="formats/swift_alpaca.csv", tokenizer="phi-3"),
    FirstHour(
        rows="llamafactory/glaive_toolcall_zh_demo.json",
        tokenizer="minimind",
        template=MISTRAL,
        kept=0.99,
    ),
)
OPTION = re.compile(r"--(?:template|set|schema|columns|history|block-len) (?:'(?:[^']|'\\'')*'|[^\s;]+)")
FURTHER = re.compile(rf"; and ({OPTION.pattern})")
"""What answers a second question of the same error."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*no trained token among their first")
@pytest.mark.parametrize("hour", HOURS, ids=lambda hour: f"{Path(hour.rows).stem}-{hour.tokenizer}")
def test_a_first_hour_ends_in_a_loss_that_falls(hour: FirstHour, real: Path, starter: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    model = starter / "tokenizer" if hour.tokenizer == STARTER else real / "tokenizers" / hour.tokenizer
    command = ["build", real / "corpora" / hour.rows, "--tokenizer", model]
    command += [] if hour.template is None else ["--template", real / "templates" / hour.template]
    met = follow([*map(str, command), "-o", str(cache)])
    totals = read_manifest(cache).totals
    print(f"{1 + len(met)} commands, {totals.kept} of {totals.rows} rows kept {totals.rejected}", *met, sep="\n  ")
    assert totals.kept >= hour.kept * totals.rows > 0
    assert [each.partition(":")[0] for each in met] == ["error"] * hour.errors + ["warning"] * hour.warnings
    run("verify", cache, "--sources", "/", "--reencode", "--sample", "20")
    losses = trained(cache)
    assert losses[-1] < losses[0]


def follow(command: list[str]) -> list[str]:
    """Type a command, again as each error and warning says, and the next one; the first line of what was met."""
    met: list[str] = []
    for _ in range(5):
        typed = type_in(command)
        if typed.exit_code == 0 and "warning: " not in typed.stdout:
            assert type_in(shlex.split(typed.stdout.partition("\nnext: packer ")[2])).exit_code == 0
            return met
        kind, said = ("warning", typed.stdout) if typed.exit_code == 0 else ("error", typed.stderr)
        said = said.partition(f"{kind}: ")[2]
        met.append(f"{kind}: {said.splitlines()[0]}")
        hint = (said if kind == "warning" else said.partition("\nhint: ")[2]).replace("\n", " ")
        found = OPTION.search(hint)
        assert found is not None, typed.output
        for option in (found[0], *FURTHER.findall(hint)):
            command = [*command, *(" ".join(word.split()) for word in shlex.split(option))]
        command += ["--force"] if kind == "warning" and "to build into the same folder" in said else []
    raise AssertionError(met)


def type_in(command: list[str]) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(cli, command)


def trained(cache: Path) -> list[float]:
    """Losses of a few steps over the shortest document, by a tiny model of the ids in it: 151,669 logits would take a CPU minutes."""
    by_length = np.argsort(Cache.open(cache).documents("train").lengths(), kind="stable")
    step = next(iter(PackedLoader(cache, batching="padding_free", order=lambda _: by_length)))
    ids = torch.cat([batch["input_ids"].flatten() for batch in step]).unique()
    model = tiny_model(dtype=torch.float32, vocab_size=len(ids))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(4):
        total = torch.zeros(())
        for batch in step:
            renumbered = {**batch, "input_ids": torch.searchsorted(ids, batch["input_ids"])}
            renumbered["labels"] = torch.where(batch["labels"] < 0, -100, torch.searchsorted(ids, batch["labels"]))
            total = (
                total + model(**huggingface(renumbered, model.config, num_items_in_batch=step.num_items_in_batch)).loss
            )
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total.item())
    return losses
