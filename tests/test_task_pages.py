"""Pages run as they stand, from rows to a loss that falls."""

import ast
import math
from functools import partial

import pytest

pytest.importorskip("torch", reason="TORCH MISSING: the pages from rows to a loss are not run")
pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: the pages from rows to a loss are not run")

import torch
import transformers
from single_documents import read_document
from task_pages import (
    FROM_ROWS,
    builds_of,
    losses_of,
    python_of,
    qwen3_like,
    run_from_rows,
    run_page,
    small_model,
    write_rows,
)

import packer
from packer.load import arguments

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def conversation(number):
    return {
        "conversations": [
            {"from": "human", "value": f"What is {number} plus {number}?"},
            {"from": "gpt", "value": f"It is {2 * number}."},
            {"from": "human", "value": "And twice that?"},
            {"from": "gpt", "value": f"That is {4 * number}."},
        ]
    }


def reasoned(number):
    return {
        "Question": f"What is {number} plus {number}?",
        "Complex_CoT": f"Twice {number} is {2 * number}.",
        "Response": f"It is {2 * number}.",
    }


def trace(number):
    calls = [
        {"id": name, "type": "function", "function": {"name": "weather", "arguments": {"city": f"{name}{number}"}}}
        for name in ("a", "b")
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": f"{number} degrees"} for call in calls]
    return {
        "tools": [TOOL],
        "messages": [
            {"role": "user", "content": f"Which is warmer, a{number} or b{number}?"},
            {"role": "assistant", "content": "I look.", "reasoning_content": "Both.", "tool_calls": calls},
            *results,
            {"role": "assistant", "content": "They are equal."},
        ],
    }


MADE = {
    "conversations.jsonl": conversation,
    "reasoning.jsonl": reasoned,
    "traces.jsonl": trace,
}
TRAINED = {
    "conversations.jsonl": ["It is 14.<|im_end|>", "<think>\n\n</think>\n\nThat is 28.<|im_end|>"],
    "reasoning.jsonl": ["<think>\nTwice 7 is 14.\n</think>\n\nIt is 14.<|im_end|>"],
    "traces.jsonl": ["a7", "b7", "They are equal.<|im_end|>"],
}
"""Of the eighth row, at least."""


@pytest.fixture(scope="module")
def model(starter, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages") / "model"
    small_model(folder, starter / "tokenizer", vocab_size=4096)
    template = folder / "chat_template.jinja"
    template.write_text(qwen3_like(template.read_text("utf-8")), "utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("rows", MADE)
def test_the_page_leads_from_rows_to_a_loss_that_falls(rows, model, tmp_path, monkeypatch, capsys):
    from tokenizers import Tokenizer

    monkeypatch.chdir(tmp_path)
    (tmp_path / "YOUR_MODEL").symlink_to(model)
    write_rows(rows, [MADE[rows](number) for number in range(40)])
    names = run_from_rows(rows, monkeypatch)
    totals = names["result"].manifest.totals
    assert (totals.rows, totals.kept) == (40, 40)
    losses = losses_of(capsys.readouterr().out)
    assert len(losses) >= 3 and losses[-1] < losses[0]
    documents = names["result"].cache.documents("train")
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    (row,) = [number for number, of_row in enumerate(documents.file_rows().tolist()) if of_row == 7]
    labels = read_document(documents, row).labels
    trained = tokenizer.decode(labels[labels != -100].tolist(), skip_special_tokens=False)
    for text in TRAINED[rows]:
        assert text in trained
    assert "What is" not in trained and "Which is" not in trained and "degrees" not in trained


def test_the_page_on_python_runs_block_after_block(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "YOUR_MODEL").symlink_to(model)
    names = run_page("build-from-python.md", monkeypatch)
    shown = capsys.readouterr()
    assert "1,000 rows kept in cache.rows/train-" in shown.err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.endswith(".rows")) == [
        "by_split.rows",
        "cache.rows",
        "sums.rows",
    ]
    assert names["stats"].totals.rows == 1000
    assert names["step"].index == 0
    assert_following_pages_train()


def assert_following_pages_train():
    """Whatever the pages on training open as `cache` has a step, and what they build of `rows.jsonl` fills one."""
    opened = 0
    for page in ("train.md", "trainers/trl.md", "trainers/pytorch.md", "trainers/transformers.md"):
        found = (node for code in python_of(page) for node in ast.walk(ast.parse(code)))
        for call in (node for node in found if isinstance(node, ast.Call) and is_cache(node)):
            text = ast.unparse(call)
            if not any(word in text for word in ("split='eval'", "device", "**", "sequential_by")):
                step = next(iter(eval(text, {**vars(arguments), "PackedLoader": packer.PackedLoader})))
                assert next(iter(step))["input_ids"].numel()
                opened += 1
    assert opened > 10
    built = packer.build("rows.jsonl", "as_trl_and_pytorch", tokenizer="YOUR_MODEL", pack={"block_len": 2048})
    assert built.manifest.totals.blocks >= 8


def rollout(number):
    ids = [5 + (3 * number + 7 * t) % 190 for t in range(6 + number % 5)]
    sampled = [0, 0, 0] + [1] * (len(ids) - 3)
    logps = [-0.5 - t / 8 if flag else None for t, flag in enumerate(sampled)]
    return {"input_ids": ids, "loss_mask": sampled, "logps": logps, "advantage": (number % 3 - 1) / 2}


@pytest.mark.slow
def test_the_page_on_columns_distills_trains_on_rollouts_and_weighs_tokens(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "YOUR_MODEL").symlink_to(model)
    small_model(tmp_path / "YOUR_TEACHER", model, vocab_size=4096, seed=1)
    teacher = transformers.AutoModelForCausalLM.from_pretrained("YOUR_TEACHER")
    teacher.lm_head.weight.data *= 60  # one that is sure of something
    teacher.save_pretrained("YOUR_TEACHER")
    rows = [rollout(number) for number in range(40)]
    write_rows("conversations.jsonl", [conversation(number) for number in range(42)])  # the last batch is not full
    write_rows("rollouts.jsonl", rows)
    weighted = [
        {"input_ids": ids, "labels": ids, "loss_weights": [t % 3 / 2 for t in range(len(ids))]}
        for ids in (row["input_ids"] for row in rows)
    ]
    write_rows("weighted.jsonl", weighted)
    options = {"use_cpu": True, "bf16": False, "report_to": "none", "logging_steps": 1}
    monkeypatch.setattr(transformers, "TrainingArguments", partial(transformers.TrainingArguments, **options))
    names = run_page("columns.md", monkeypatch)
    losses = losses_of(capsys.readouterr().out)
    assert len(losses) >= 3 and 0 < losses[-1] < losses[0]
    logged = [each["loss"] for each in names["trainer"].state.log_history if "loss" in each]
    assert logged and logged[-1] < logged[0]
    student, total = names["model"].double().eval(), 0.0
    for step in packer.PackedLoader("rollouts", end="short", columns=["logps", "advantage"]):
        total += sum(names["policy_loss"](student, micro_batch).item() for micro_batch in step)
    assert total == pytest.approx(sum(map(partial(plain_loss, student), rows)), rel=1e-6)


def plain_loss(model, row):
    """Of one rollout, token by token, as the page says it: clipped ratios."""
    logits = model(input_ids=torch.tensor([row["input_ids"]]), use_cache=False).logits[0]
    loss = 0.0
    for t, token in enumerate(row["input_ids"]):
        if row["loss_mask"][t]:
            ratio = math.exp(logits[t - 1].log_softmax(-1)[token].item() - row["logps"][t])
            clipped = min(max(ratio, 0.8), 1.2)
            loss -= min(ratio * row["advantage"], clipped * row["advantage"])
    return loss


def is_cache(call):
    return ast.unparse(call.func) == "PackedLoader" and ast.unparse(call.args[0]) == "'cache'"


def test_every_build_of_the_page_is_run():
    assert set(builds_of(FROM_ROWS)) == set(MADE)
    assert len(python_of(FROM_ROWS)) == len(MADE) + 1
