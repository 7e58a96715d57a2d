"""Real processes under torchrun: a run that stops and goes on with other sizes is the run that did not stop."""

import importlib.util
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")

from small_blocks import small_cache  # noqa: E402
from torchrun import torchrun as run_script  # noqa: E402

from packer.load import PackedLoader  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="GLOO MISSING: several processes are not tested",
)

HERE = Path(__file__).parent
CACHE = small_cache(35, 16)
OPTIONS = {"global_batch_size": 8, "end": "wrap", "seed": 3}
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
    run_script(HERE / "elastic_run.py", folder / f"{name}.json", num_processes=num_processes, timeout_s=120)
    return torch.load(settings["report"], weights_only=True)


@pytest.mark.parametrize(("num_processes", "micro_batch_size"), [(1, 4), pytest.param(4, 2, marks=pytest.mark.slow)])
def test_five_steps_on_two_processes_and_five_on_fewer_or_more_are_ten_steps_on_one(
    num_processes, micro_batch_size, tmp_path
):
    """The checkpoint between is torch's distributed one, written by two ranks and read by one or by four.

    Micro-batches change from one block to four or two, accumulation from four micro-batches to two or one.
    """
    alone = script()
    loader = PackedLoader(CACHE, rank=0, world_size=1, micro_batch_size=4, **OPTIONS)
    model, optimizer = alone.model_and_optimizer()
    losses, blocks = alone.train(loader, model, optimizer, 10)
    assert loader.epoch == 2

    first = torchrun(tmp_path, "first", 2, micro_batch_size=1, save=tmp_path / "checkpoint")
    second = torchrun(
        tmp_path, "second", num_processes, micro_batch_size=micro_batch_size, resume=tmp_path / "checkpoint"
    )

    assert (first["world_size"], second["world_size"]) == (2, num_processes)
    assert first["blocks"] + second["blocks"] == blocks
    assert len({*map(tuple, blocks)}) == 10
    assert first["losses"] + second["losses"] == pytest.approx(losses, rel=1e-11, abs=0)
    for name, weights in model.state_dict().items():
        torch.testing.assert_close(second["weights"][name], weights, rtol=1e-10, atol=1e-12)
        assert not torch.equal(first["weights"][name], weights)
    for run in (first, second):  # one process has nobody to wait for
        assert "torch.distributed is not initialised" in (run["too_early"] or "") or run["world_size"] == 1
