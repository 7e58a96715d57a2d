"""The page from rows to a training loop on real rows under Qwen3's template: from a file to a loss that falls.

The tokenizer is a small one of real use: the logits of Qwen3's 151,669 ids would take a CPU minutes.
"""

import json
import shutil

import pytest

pytest.importorskip("torch", reason="TORCH MISSING: the page from rows to a loss is not run on real rows")
pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: the page from rows to a loss is not run on real rows")

from task_pages import losses_of, run_from_rows, small_model, write_rows

pytestmark = [pytest.mark.real, pytest.mark.slow]


def dialogues(corpora):
    return json.loads((corpora / "formats" / "fastchat_dummy_conversation.json").read_text("utf-8"))[:40]


def reasoned(corpora):
    """Grade school mathematics: the steps before the `####`, and the result behind it."""
    for line in (corpora / "gsm8k_1319.jsonl").read_text("utf-8").splitlines()[:24]:
        row = json.loads(line)
        steps, _, result = row["answer"].partition("\n#### ")
        yield {"Question": row["question"], "Complex_CoT": steps, "Response": result}


def traces(corpora):
    """Those with several calls at once, and some others."""
    lines = (corpora / "reason_tool_use_openai_50.jsonl").read_text("utf-8").splitlines()
    rows = sorted(map(json.loads, lines), key=lambda row: -max(len(m.get("tool_calls") or ()) for m in row["messages"]))
    assert sum(any(len(m.get("tool_calls") or ()) > 1 for m in row["messages"]) for row in rows) == 10
    return rows[:12]


REAL = {
    "conversations.jsonl": dialogues,
    "reasoning.jsonl": reasoned,
    "traces.jsonl": traces,
}


@pytest.mark.parametrize("file", REAL)
def test_the_page_leads_from_real_rows_to_a_loss_that_falls(file, real, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small_model(tmp_path / "YOUR_MODEL", real / "tokenizers" / "minimind", vocab_size=6400)
    shutil.copy(real / "templates" / "trl__qwen3.jinja", tmp_path / "YOUR_MODEL" / "chat_template.jinja")
    rows = list(REAL[file](real / "corpora"))
    write_rows(file, rows)
    names = run_from_rows(file, monkeypatch)
    totals = names["result"].manifest.totals
    print(f"{file}: {totals.kept} of {totals.rows} rows kept, rejected {totals.rejected}")
    assert totals.rows == len(rows) and totals.kept >= 0.9 * totals.rows
    losses = losses_of(capsys.readouterr().out)
    assert len(losses) >= 3 and losses[-1] < losses[0]
