"""Pages of docs/how-to/trainers under torchrun: on two processes they train what they train on one."""

import re
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: trainers are not tested")

from small_blocks import small_cache  # noqa: E402
from tiny_models import tiny_model  # noqa: E402
from torchrun import SEVERAL_PROCESSES, torchrun  # noqa: E402

pytestmark = SEVERAL_PROCESSES

PAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "how-to" / "trainers"


def first_block(page):
    return re.findall(r"```python\n(.*?)```", (PAGES / page).read_text("utf-8"), re.DOTALL)[0]


def folder_of(path, num_blocks, monkeypatch):
    """Where the pages' caches and models are; its eval split is its train split."""
    path.mkdir()
    monkeypatch.chdir(path)
    (path / "cache").symlink_to(small_cache(num_blocks, 16).folder)
    tiny_model(dtype=torch.float32).save_pretrained(path / "YOUR_MODEL")
    return path


def test_the_loop_of_the_page_trains_on_two_processes_what_it_trains_on_one(tmp_path, monkeypatch):
    """Eleven steps of an epoch of 88 blocks; the checkpoint of the last one is what both leave behind."""
    found = {}
    for num_processes in (1, 2):
        folder = folder_of(tmp_path / str(num_processes), 88, monkeypatch)
        (folder / "train.py").write_text(first_block("pytorch.md"), "utf-8")
        torchrun(folder / "train.py", num_processes=num_processes)
        found[num_processes] = torch.load(folder / "run.pt", weights_only=True)
    one, two = found[1], found[2]
    assert one["reader"] == two["reader"]
    assert one["reader"]["counters"]["steps"] == 11
    assert len(one["model"]) > 10
    for name, weights in one["model"].items():
        torch.testing.assert_close(two["model"][name], weights, rtol=1e-3, atol=1e-5)


def test_lightning_trains_on_two_processes_what_it_trains_on_one(tmp_path, monkeypatch):
    """The page's module, on two devices; weights, the last training loss and the validation's are those of one."""
    pytest.importorskip("lightning", reason="LIGHTNING MISSING: its Trainer is not tested")
    code = first_block("lightning.md").replace('split="eval", ', "")
    assert code.count("devices=1)") == 1
    code = code.replace("devices=1)", 'devices=int(os.environ["WORLD_SIZE"]), strategy="ddp")')
    code = f"import os\n{code}\n" + LEAVE_BEHIND
    found = {}
    for num_processes in (1, 2):
        folder = folder_of(tmp_path / str(num_processes), 35, monkeypatch)
        (folder / "train.py").write_text(code, "utf-8")
        torchrun(folder / "train.py", num_processes=num_processes)
        found[num_processes] = torch.load(folder / "found.pt", weights_only=True)
    one, two = found[1], found[2]
    assert one["reader"] == two["reader"]
    assert one["steps"] == two["steps"] == 8
    assert {"train_loss", "val_loss", "coverage", "padding_share"} <= set(one["metrics"])
    for name in one["metrics"]:
        value = one["metrics"][name]
        assert two["metrics"][name] == pytest.approx(value, rel=1e-5), name
    for name, weights in one["weights"].items():
        torch.testing.assert_close(two["weights"][name], weights, rtol=1e-3, atol=1e-5)


LEAVE_BEHIND = """
if trainer.global_rank == 0:
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    weights = trainer.lightning_module.model.state_dict()
    saved = {"reader": data.state_dict()["reader"], "steps": trainer.global_step, "metrics": metrics, "weights": weights}
    torch.save(saved, "found.pt")
trainer.strategy.barrier()
os._exit(0)
"""
