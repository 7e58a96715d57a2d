"""Real pairs under real templates: what TRL's own preparation makes of them, and in what it differs."""

import json
import shutil

import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: trainers are not tested")
transformers = pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: trainers are not tested")
trl = pytest.importorskip("trl", reason="TRL MISSING: its DPO trainer is not tested")
datasets = pytest.importorskip("datasets", reason="DATASETS MISSING: TRL's trainers are not tested")

from preference_rows import built  # noqa: E402
from preference_runs import batches_of, same_batches, trainer_of  # noqa: E402

from packer.load import trainers  # noqa: E402

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


@pytest.fixture(scope="module")
def rows(real):
    """LLaMA-Factory's pairs as lists of messages."""
    found = json.loads((real / "corpora" / "llamafactory" / "dpo_en_demo.json").read_text("utf-8"))

    def messages(turns):
        return [{"role": ROLES[turn["from"]], "content": turn["value"]} for turn in turns]

    made = [
        {
            "prompt": messages(row["conversations"]),
            "chosen": messages([row["chosen"]]),
            "rejected": messages([row["rejected"]]),
        }
        for row in found
    ]
    return made[:60]


def tokenizer_of(real, folder, name, template):
    shutil.copytree(real / "tokenizers" / name, folder)
    (folder / "chat_template.jinja").write_bytes((real / "templates" / template).read_bytes())
    return folder


def both(rows, tokenizer, tmp_path):
    """The trainer over a cache, and TRL's own, of the same rows."""
    heading = "Let's think through this step-by-step:...Final answer:"  # of one answer, which a build asks about
    cache = built(tmp_path / "cache", rows, tokenizer, roles={heading: "assistant"})
    ours = trainer_of(trainers.PackedDPOTrainer, tmp_path, trainers.PreferenceData(cache), tokenizer)
    return ours, trainer_of(trl.DPOTrainer, tmp_path, datasets.Dataset.from_list(rows), tokenizer)


def test_under_the_template_of_llama_3_trl_prepares_the_same_batches(real, rows, tmp_path):
    template = "llamacpp__meta-llama-Llama-3.1-8B-Instruct.jinja"
    ours, own = both(rows, tokenizer_of(real, tmp_path / "llama-3", "llama-3", template), tmp_path)
    same_batches(batches_of(ours), batches_of(own))


def test_under_the_template_of_qwen3_trl_learns_a_block_of_reasoning_and_a_newline(real, rows, tmp_path):
    """The empty block belongs to the prompt of a plain answer; the newline comes when generation has stopped."""
    tokenizer = tokenizer_of(real, tmp_path / "qwen3", "qwen3", "trl__qwen3.jinja")
    ours, own = both(rows, tokenizer, tmp_path)
    decode = transformers.PreTrainedTokenizerFast.from_pretrained(tokenizer).decode
    compared = 0
    for found, expected in zip(batches_of(ours), batches_of(own), strict=True):
        for row in range(len(found["input_ids"])):
            parts = []
            for batch in (found, expected):
                real_tokens, learned = batch["attention_mask"][row].bool(), batch["completion_mask"][row].bool()
                ids = batch["input_ids"][row]
                parts.append((decode(ids[real_tokens & ~learned]), decode(ids[learned])))
            (prompt, answer), (own_prompt, own_answer) = parts
            block = "<think>\n\n</think>\n\n"
            assert (prompt, block + answer + "\n") == (own_prompt + block, own_answer)
            compared += 1
    assert compared == 120
