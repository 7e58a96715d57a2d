"""transformers' Trainer on two processes is the one on one: same steps, losses, weights, evaluation; resumed on either."""

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: its Trainer is not tested")
pytest.importorskip("accelerate", reason="ACCELERATE MISSING: transformers' Trainer is not tested")

from torchrun import SEVERAL_PROCESSES, torchrun
from trainer_runs import loader_of, plain_loop, trainer_of

pytestmark = SEVERAL_PROCESSES

SCRIPT = Path(__file__).parent / "trainer_run.py"
NUM_STEPS = 6


def on_two(folder, *, micro_batch_size, resume=None, **args):
    folder.mkdir()
    settings = {
        "output_dir": str(folder / "run"),
        "report": str(folder / "report.pt"),
        "loader": {"micro_batch_size": micro_batch_size},
        "args": {"max_steps": NUM_STEPS, **args},
        "resume": resume and str(resume),
    }
    (folder / "settings.json").write_text(json.dumps(settings), "utf-8")
    torchrun(SCRIPT, folder / "settings.json", num_processes=2)
    return torch.load(settings["report"], weights_only=True)


def test_two_processes_train_the_steps_of_one_and_go_on_where_one_stopped(tmp_path):
    losses, model = plain_loop(loader_of(), NUM_STEPS)
    with loader_of() as loader:
        blocks = [sorted(step.block_ids) for _, step in zip(range(NUM_STEPS), loader.endless(), strict=False)]
    held_out = trainer_of(tmp_path / "alone", model=model, eval_dataset=loader_of()).evaluate()["eval_loss"]
    trainer_of(tmp_path / "one", loader_of(), max_steps=4, save_strategy="steps", save_steps=4).train()
    runs = {
        "begun": on_two(tmp_path / "begun", micro_batch_size=1, save_strategy="steps", save_steps=3),
        "resumed": on_two(tmp_path / "resumed", micro_batch_size=4, resume=tmp_path / "one" / "checkpoint-4"),
    }
    for name, found in runs.items():
        assert [sorted(of_step) for of_step in found["blocks"]] == (blocks if name == "begun" else blocks[4:])
        assert found["losses"] == pytest.approx(losses, rel=1e-6)
        assert found["eval_loss"] == pytest.approx(held_out, rel=1e-6)
        for key, value in model.state_dict().items():
            torch.testing.assert_close(found["weights"][key], value, rtol=1e-4, atol=1e-6)
    state = json.loads((tmp_path / "begun" / "run" / "checkpoint-3" / "trainer_state.json").read_text("utf-8"))
    assert state["stateful_callbacks"]["packer"]["reader"]["counters"]["steps"] == 3
