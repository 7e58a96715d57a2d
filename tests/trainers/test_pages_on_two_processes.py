"""The loop of docs/how-to/trainers/pytorch.md under torchrun: on two processes it trains what it trains on one."""

import re
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: trainers are not tested")
transformers = pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: trainers are not tested")

from small_blocks import small_cache  # noqa: E402
from tiny_models import tiny_model  # noqa: E402
from torchrun import torchrun  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
        reason="GLOO MISSING: several processes are not tested",
    ),
]

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "how-to" / "trainers" / "pytorch.md"


def test_the_loop_of_the_page_trains_on_two_processes_what_it_trains_on_one(tmp_path, monkeypatch):
    """Eleven steps of an epoch of 88 blocks; the last checkpoint, of step 9, is what both leave behind."""
    script = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[0]
    found = {}
    for num_processes in (1, 2):
        folder = tmp_path / str(num_processes)
        folder.mkdir()
        monkeypatch.chdir(folder)
        (folder / "cache").symlink_to(small_cache(88, 16).folder)
        tiny_model(dtype=torch.float32).save_pretrained(folder / "YOUR_MODEL")
        (folder / "train.py").write_text(script, "utf-8")
        torchrun(folder / "train.py", num_processes=num_processes)
        found[num_processes] = torch.load(folder / "run.pt", weights_only=True)
        shutil.rmtree(folder / "YOUR_MODEL")
    one, two = found[1], found[2]
    assert one["reader"] == two["reader"]
    assert one["reader"]["counters"]["steps"] == 10
    assert len(one["model"]) > 10
    for name, weights in one["model"].items():
        torch.testing.assert_close(two["model"][name], weights, rtol=1e-3, atol=1e-5)
