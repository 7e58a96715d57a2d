"""Real processes under torchrun: a run that stops and goes on with other sizes is the run that did not stop."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from small_blocks import small_cache
from torchrun import SEVERAL_PROCESSES
from torchrun import torchrun as run_script

from packer.load import PackedLoader

pytestmark = SEVERAL_PROCESSES  # tests/load/test_documents.py has the same without, and is quick

HERE = Path(__file__).parent
CACHE = small_cache(35, 16)
OPTIONS = {"global_batch_size": 8, "seed": 3}
"""Ten steps of eight blocks go over two ends of an epoch of 35, neither of them where the run stops."""


def script():
    """The script the processes run, as a module."""
    spec = importlib.util.spec_from_file_location("elastic_run", HERE / "elastic_run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def torchrun(folder, name, num_processes, *, micro_batch_size, resume=None, save=None):
    settings = {
        "cache": str(CACHE.folder),
        "report": str(folder / f"{name}.pt"),
        "num_steps": 5,
        "loader": {**OPTIONS, "micro_batch_size": micro_batch_size},
        "resume": resume and str(resume),
        "save": save and str(save),
    }
    (folder / f"{name}.json").write_text(json.dumps(settings), "utf-8")
    run_script(HERE / "elastic_run.py", folder / f"{name}.json", num_processes=num_processes)
    return torch.load(settings["report"], weights_only=True)


def ten_steps_alone():
    alone = script()
    model, optimizer = alone.model_and_optimizer()
    losses, blocks = alone.train(loader_alone(), model, optimizer, 10)
    return {"losses": losses, "blocks": blocks, "weights": model.state_dict()}


def loader_alone():
    return PackedLoader(CACHE, rank=0, world_size=1, micro_batch_size=4, **OPTIONS)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized")
def test_five_steps_on_two_processes_and_five_here_or_on_four_are_ten_steps_here(tmp_path):
    """The checkpoint between is torch's distributed one, written by two ranks; micro-batches and accumulation change too."""
    whole, alone = ten_steps_alone(), script()
    first = torchrun(tmp_path, "first", 2, micro_batch_size=1, save=tmp_path / "checkpoint")
    loader = loader_alone()
    model, optimizer = alone.model_and_optimizer()
    alone.resume(model, optimizer, loader, tmp_path / "checkpoint")
    losses, blocks = alone.train(loader, model, optimizer, 5)
    assert_same(whole, first, {"losses": losses, "blocks": blocks, "weights": model.state_dict()})
    assert loader.epoch == 2
    second = torchrun(tmp_path, "second", 4, micro_batch_size=2, resume=tmp_path / "checkpoint")
    assert_same(whole, first, second)
    assert (first["world_size"], second["world_size"]) == (2, 4)
    assert set(first["refusals"]) == {"the loaders of ranks 0 and 1 differ: seed 0 and 1"}
    for run in (first, second):
        assert "torch.distributed is not initialized" in run["too_early"]


def assert_same(whole, first, second):
    """Two halves are the whole: blocks, losses and, of the second, weights."""
    assert first["blocks"] + second["blocks"] == whole["blocks"]
    assert len({*map(tuple, whole["blocks"])}) == 10
    assert first["losses"] + second["losses"] == pytest.approx(whole["losses"], rel=1e-11, abs=0)
    for name, weights in whole["weights"].items():
        torch.testing.assert_close(second["weights"][name], weights, rtol=1e-10, atol=1e-12)
        assert not torch.equal(first["weights"][name], weights)
