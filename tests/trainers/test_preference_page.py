"""docs/how-to/preference.md runs as it stands: rows, the commands, TRL's trainers, and a loop whose loss falls."""

import re
import shlex
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: the page on preferences is not run")
pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: the page on preferences is not run")
trl = pytest.importorskip("trl", reason="TRL MISSING: the page on preferences is not run")

from click.testing import CliRunner  # noqa: E402
from preference_rows import pair  # noqa: E402
from task_pages import HOW_TO, losses_of, python_of, small_model, write_rows  # noqa: E402

from packer_cli.main import cli  # noqa: E402

PAGE = "preference.md"
COMMAND = re.compile(r"^packer (.*)$", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # TRL uses what transformers deprecated
def test_the_page_leads_from_rows_to_a_loss_that_falls(starter, tmp_path, monkeypatch, capsys):
    import packer.load.trainers.preference  # noqa: F401 - before its library's names are replaced

    monkeypatch.chdir(tmp_path)
    small_model(Path("YOUR_MODEL"), starter / "tokenizer", vocab_size=4096)
    write_rows("pairs.jsonl", [pair(number) for number in range(40)])
    for name in ("DPOConfig", "KTOConfig", "RewardConfig"):
        monkeypatch.setattr(trl, name, partial(getattr(trl, name), use_cpu=True, bf16=False, report_to="none"))
    commands = COMMAND.findall((HOW_TO / PAGE).read_text("utf-8"))
    assert len(commands) == 2
    for command in commands:
        result = CliRunner().invoke(cli, shlex.split(command))
        assert result.exit_code == 0, result.output
    assert "It is 14." in result.output and "I think that 7 is enough" in result.output
    names, blocks = {}, python_of(PAGE)
    assert len(blocks) == 4
    for block in blocks:  # a learning rate at which a few steps show
        exec(compile(block.replace("lr=1e-6", "lr=1e-2"), PAGE, "exec"), names)
    assert names["trainer"].state.global_step == 20  # of KTO: 80 answers, 4 a step
    losses = losses_of(capsys.readouterr().out)
    assert len(losses) == 5 and losses[-1] < losses[0]
