"""The pages of docs/how-to/trainers: what they show runs, block after block."""

import logging
import math
import re
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: trainers are not tested")

from tiny_models import tiny_config  # noqa: E402

from packer import PackedLoader  # noqa: E402
from packer.load.trainers import TRAINERS  # noqa: E402

FOLDER = Path(__file__).resolve().parent.parent.parent / "docs" / "how-to" / "trainers"
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
IN_PEERS = {"grain.md", "torchtitan.md"}
"""Run in tests/peers, where their libraries are."""

BLOCKS = {path.name: PYTHON.findall(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.md"))}
RUN = [page for page, blocks in BLOCKS.items() if blocks and page not in IN_PEERS]


pytestmark = pytest.mark.filterwarnings("ignore")  # trainers use what their libraries deprecated


@pytest.fixture(scope="module")
def model_folder(starter, tmp_path_factory):
    """A tiny model and the starter's tokenizer, as a model's folder."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(tiny_config(vocab_size=4096)).save_pretrained(folder)
    shutil.copytree(starter / "tokenizer", folder, dirs_exist_ok=True)
    return folder


@pytest.fixture
def place(model_folder, few_blocks, tmp_path, monkeypatch):
    """A folder with a cache and a model, by the names the pages give them, for one process on a CPU."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").symlink_to(few_blocks)
    (tmp_path / "YOUR_MODEL").symlink_to(model_folder)
    trl = pytest.importorskip("trl", reason="TRL MISSING: its page is not run")
    monkeypatch.setattr(trl, "SFTConfig", partial(trl.SFTConfig, use_cpu=True, bf16=False))
    return tmp_path


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(logging.getLogger("lightning.pytorch"), "level", logging.ERROR)


def as_torchrun_starts_one(monkeypatch):
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("GLOO MISSING: several processes are not tested")
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if sys.platform == "linux":
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # a host whose name leads nowhere can still run this


def as_somebody_who_has_rows(folder, starter, monkeypatch):
    """A file of rows, and no cache yet."""
    datasets = pytest.importorskip("datasets", reason="DATASETS MISSING: the page of TRL is not run")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "datasets")
    (folder / "cache").unlink()
    lines = (starter / "data" / "chat.jsonl").read_text("utf-8").splitlines(keepends=True)
    rows = [line for line in lines if line.startswith('{"messages"') and '"image' not in line]
    (folder / "rows.jsonl").write_text("".join(rows[:40] * 12), "utf-8")


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=[pytest.mark.slow] * (p in ("lightning.md", "trl.md"))) for p in RUN]
)
def test_what_a_page_shows_runs_block_after_block(page, place, starter, monkeypatch):
    if page == "trl.md":
        as_somebody_who_has_rows(place, starter, monkeypatch)
    if page == "pytorch.md":
        as_torchrun_starts_one(monkeypatch)
    for library in {library for entry in TRAINERS.values() if entry.page == page for library in entry.libraries}:
        pytest.importorskip(library, reason=f"{library.upper()} MISSING: {page} is not run")
    names = {}
    for block in BLOCKS[page]:
        exec(compile(block, page, "exec"), names)
    if page == "pytorch.md":
        assert names["loader"].epoch == 1
        assert names["step"].index == 3
    elif page == "lightning.md":
        assert (
            names["trainer"].global_step == 2 * len(PackedLoader("cache", micro_batch_size=1, global_batch_size=8)) > 4
        )
        assert names["trainer"].callback_metrics["val_loss"] < math.log(4096) - 0.01, "better than a guess"
    elif page in {"transformers.md", "trl.md"}:
        state = names["trainer"].state
        assert state.global_step == state.max_steps > 2
    if page == "transformers.md":
        assert len(names["held_out"]) and "eval_loss" in names["trainer"].state.log_history[-1]
        assert list((place / "run").glob("checkpoint-*/trainer_state.json"))


def test_every_page_is_linked_and_those_of_trainers_that_take_a_loader_show_code():
    entry = (FOLDER.parent / "train.md").read_text("utf-8")
    assert all(f"trainers/{page}" in entry for page in BLOCKS)
    assert {page for page, blocks in BLOCKS.items() if not blocks} == {"axolotl.md", "llamafactory.md"}
    assert {entry.page for entry in TRAINERS.values()} <= {*RUN, *IN_PEERS}
