"""A loader's state in the checkpoints of others: torch, JSON, torch.distributed.checkpoint, torchdata, Lightning."""

import json
import logging
import warnings
from copy import deepcopy

import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")

from small_blocks import small_cache  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

from packer.errors import CheckError, UsageError  # noqa: E402
from packer.load import PackedLoader, StepDataset  # noqa: E402

NUM_BLOCKS, EPOCHS = 11, 3


def loader_of(cache=None, **options):
    options = {"micro_batch_size": 1, "global_batch_size": 2, "rank": 0, "world_size": 1, "end": "pad", **options}
    return PackedLoader(cache or small_cache(NUM_BLOCKS), **options)


def what(step):
    """What makes a step this one and no other."""
    return step.index, step.epoch, step.block_ids.tolist(), step.num_items_in_batch


def epochs_of(loader, steps_of=None, epochs=EPOCHS):
    """Steps up to an epoch, by the loop the loader's documentation shows."""
    while loader.epoch < epochs:
        for step in steps_of or loader:
            yield what(step)


# Files


def through_torch_save(state, folder):
    torch.save({"reader": state, "weights": torch.zeros(2)}, folder / "state.pt")
    return torch.load(folder / "state.pt", weights_only=True)["reader"]


def through_json(state, folder):
    (folder / "state.json").write_text(json.dumps(state), "utf-8")
    return json.loads((folder / "state.json").read_text("utf-8"))


@pytest.mark.parametrize("saved_by", [through_torch_save, through_json])
@pytest.mark.parametrize("made", [lambda loader: loader, StepDataset])
def test_a_state_from_a_file_is_the_state_and_goes_on_at_the_next_step(saved_by, made, tmp_path):
    whole = list(epochs_of(loader_of()))
    num_resumed = 0
    for stop in (1, 5, 6, 9):
        with loader_of() as loader:
            source, taken = made(loader), 0
            while taken < stop:
                for _ in source:
                    taken += 1
                    if taken == stop:
                        break
            state = source.state_dict()
        read = saved_by(state, tmp_path)
        assert read == state
        resumed = loader_of()
        target = made(resumed)
        target.load_state_dict(read)
        assert target.state_dict() == state
        assert next(epochs_of(resumed, target)) == whole[stop]
        resumed.close()
        num_resumed += 1
    assert num_resumed == 4


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("made", [lambda loader: loader, StepDataset])
def test_a_distributed_checkpoint_takes_a_loader_as_it_is(made, tmp_path):
    from torch.distributed import checkpoint

    whole = list(epochs_of(loader_of()))
    with loader_of() as loader:
        steps = iter(loader)
        for _ in range(4):
            next(steps)
        saved = {"reader": made(loader), "weights": torch.arange(3.0)}
        checkpoint.save(saved, checkpoint_id=tmp_path / "checkpoint")
        state = loader.state_dict()
    resumed = loader_of()
    restored = {"reader": made(resumed), "weights": torch.zeros(3)}
    checkpoint.load(restored, checkpoint_id=tmp_path / "checkpoint")
    assert restored["weights"].tolist() == [0, 1, 2]
    assert resumed.state_dict() == state
    assert list(epochs_of(resumed)) == whole[4:]


# Steps as a dataset


@pytest.mark.parametrize("end", ["drop", "pad", "short"])
@pytest.mark.parametrize("counted", [True, False])
def test_passes_over_a_step_dataset_are_the_epochs_whether_or_not_the_consumer_asks_for_the_end(end, counted):
    """`counted` stops after the announced number of steps, as Lightning does, and never asks for the one after."""
    expected = list(epochs_of(loader_of(end=end, prefetch=0)))
    loader = loader_of(end=end)
    dataset, seen = StepDataset(loader), []
    for epoch in range(EPOCHS):
        steps, num_steps = iter(dataset), len(dataset)
        assert num_steps == sum(1 for _, of, *_ in expected if of == epoch)
        seen += [what(next(steps)) for _ in range(num_steps)] if counted else [what(step) for step in steps]
    loader.close()
    assert seen == expected


@pytest.mark.parametrize("end", ["drop", "pad", "short"])
def test_the_length_of_a_step_dataset_is_that_of_the_whole_epoch_wherever_it_stands(end):
    loader = loader_of(end=end)
    dataset, num_seen = StepDataset(loader), 0
    for _ in range(2):
        steps = iter(dataset)
        length = len(dataset)
        for left in range(length - 1, -1, -1):
            next(steps)
            restored = StepDataset(loader_of(end=end))
            restored.load_state_dict(deepcopy(dataset.state_dict()))
            if left:
                assert len(dataset) == len(restored) == length
            num_seen += 1
    loader.close()
    assert num_seen == {"drop": 10, "pad": 12, "short": 12}[end]


def test_a_damaged_state_of_steps_is_refused_and_changes_nothing():
    dataset = StepDataset(loader_of())
    before = dataset.state_dict()
    damaged = [
        None,
        {},
        dataset.loader.state_dict(),
        {"reader": before["reader"]},
        {"reader": {}, "taken": 0},
        *({**before, "taken": taken} for taken in (-1, "1", None, 1.0, True, 2**70)),
        *({**before, "first": first} for first in (-1, "1", 1.0, True)),  # of a worker, in an earlier version
    ]
    for state in damaged:
        with pytest.raises(CheckError):
            dataset.load_state_dict(state)
        assert dataset.state_dict() == before
    assert len(damaged) == 15


@pytest.mark.parametrize("made", [lambda loader: loader, StepDataset])
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_a_data_loader_are_refused_by_name_before_they_read(made, persistent):
    """What they read would be in no state of the loader, and a new size or epoch would not reach them."""

    class Steps(IterableDataset):
        def __iter__(self):
            return iter(made(loader_of()))

    options = {"num_workers": 2, "persistent_workers": persistent, "multiprocessing_context": "fork"}
    steps = iter(DataLoader(Steps(), batch_size=None, **options))
    with pytest.raises(UsageError, match=r"(?s)does not read in a worker of a DataLoader.*num_workers=0"):
        next(steps)
    steps._shutdown_workers()  # left to the garbage, each is waited for in vain for five seconds


def test_a_plain_data_loader_hands_steps_through():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps = DataLoader(StepDataset(loader_of()), batch_size=None)
        assert len(steps) == 6
        assert [what(step) for step in steps] == list(epochs_of(loader_of(), epochs=1))


# torchdata

through_torchdata = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # which torchdata calls


@pytest.fixture
def stateful_loader():
    found = pytest.importorskip(
        "torchdata.stateful_dataloader", reason="TORCHDATA MISSING: its StatefulDataLoader is not tested"
    )
    return found.StatefulDataLoader


@through_torchdata
@pytest.mark.parametrize("end", ["drop", "pad"])
def test_torchdata_resumes_at_every_step_of_several_epochs(stateful_loader, end):
    """Each state is restored in a new loader, before its first pass, and gives what the first run gave from there."""

    def passes(source, num_steps):
        while num_steps > 0:
            for step in source:
                yield what(step), deepcopy(source.state_dict())
                num_steps -= 1
                if not num_steps:
                    return

    def source_of():
        return stateful_loader(StepDataset(loader_of(end=end)), batch_size=None)

    whole = list(passes(source_of(), 14))
    assert [step for step, _ in whole] == list(epochs_of(loader_of(end=end)))[:14]
    num_resumed = 0
    for i, (_, state) in enumerate(whole[:-1]):
        source = source_of()
        source.load_state_dict(json.loads(json.dumps(state)))
        following = [step for step, _ in whole[i + 1 : i + 4]]
        assert [step for step, _ in passes(source, len(following))] == following
        source.dataset.loader.close()
        num_resumed += 1
    assert num_resumed == 13


@through_torchdata
def test_torchdata_knows_the_epoch_of_a_restored_loader_only_once_it_is_iterated(stateful_loader):
    """A difference: StatefulDataLoader keeps a state until its next pass. Count by `step.epoch`, not by `loader.epoch`."""
    loader = loader_of()
    source = stateful_loader(StepDataset(loader), batch_size=None)
    list(source)
    state = source.state_dict()
    restored = stateful_loader(StepDataset(loader_of()), batch_size=None)
    restored.load_state_dict(state)
    assert restored.dataset.loader.epoch == 0
    assert next(iter(restored)).epoch == 1
    assert restored.dataset.loader.epoch == 1
    restored.dataset.loader.close()


# Lightning

through_lightning = pytest.mark.filterwarnings(
    "ignore"
)  # it advises (workers, logging), and uses what torch deprecated


@pytest.fixture
def lightning(monkeypatch):
    found = pytest.importorskip("lightning.pytorch", reason="LIGHTNING MISSING: its Trainer is not tested")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "level", logging.ERROR)
    return found


class Runs:
    """Runs of one small model; what each saw and what became of its weights."""

    def __init__(self, lightning, folder):
        self.lightning = lightning
        self.folder = folder

    def module(self):
        class Module(self.lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.automatic_optimization = False  # a step has micro-batches of its own: one call is one update
                self.weights = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
                self.seen = []

            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters(), lr=0.1)

            def training_step(self, step, index):
                self.seen.append(what(step))
                optimizer = self.optimizers()
                optimizer.zero_grad()
                for micro_batch in step:
                    wanted = micro_batch["input_ids"].double().mean()
                    self.manual_backward((self.weights - wanted).square().sum() / step.num_items_in_batch)
                optimizer.step()

        return Module()

    def train(self, data, *, resume=None, callbacks=(), **limits):
        module = self.module()
        trainer = self.lightning.Trainer(
            default_root_dir=self.folder,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=bool(callbacks),
            callbacks=list(callbacks),
            **{"max_epochs": EPOCHS, **limits},
        )
        trainer.fit(module, data, ckpt_path=resume)
        return module

    def every_step(self):
        return self.lightning.callbacks.ModelCheckpoint(
            dirpath=self.folder, filename="{step}", every_n_train_steps=1, save_top_k=-1
        )

    def every_epoch(self):
        return self.lightning.callbacks.ModelCheckpoint(
            dirpath=self.folder, filename="{epoch}", save_top_k=-1, save_on_train_epoch_end=True
        )

    def data_module(self, dataset):
        class Data(self.lightning.LightningDataModule):
            def train_dataloader(self):
                return dataset

            def state_dict(self):
                return dataset.state_dict()

            def load_state_dict(self, state_dict):
                dataset.load_state_dict(state_dict)

        return Data()


@pytest.fixture
def runs(lightning, tmp_path):
    return Runs(lightning, tmp_path)


@through_lightning
@pytest.mark.parametrize("end", ["drop", pytest.param("pad", marks=pytest.mark.slow)])
def test_lightning_resumes_at_any_step_of_an_epoch_exactly(runs, end):
    whole = runs.train(StepDataset(loader_of(end=end)), callbacks=[runs.every_step()])
    assert whole.seen == list(epochs_of(loader_of(end=end)))
    per_epoch = len(whole.seen) // EPOCHS
    for step in (per_epoch - 1, per_epoch, per_epoch + 1):
        resumed = runs.train(StepDataset(loader_of(end=end)), resume=runs.folder / f"step={step}.ckpt")
        assert resumed.seen == whole.seen[step:]
        assert torch.equal(resumed.weights, whole.weights)


@through_lightning
def test_lightning_restores_a_checkpoint_of_an_epochs_end_only_through_a_data_module(runs):
    """A difference: of a checkpoint saved as an epoch ends Lightning drops the states of iterables, and data repeats."""
    whole = runs.train(runs.data_module(StepDataset(loader_of())), callbacks=[runs.every_epoch()])
    bare, held = (
        runs.train(made(StepDataset(loader_of())), resume=runs.folder / "epoch=0.ckpt")
        for made in (lambda dataset: dataset, runs.data_module)
    )
    per_epoch = len(whole.seen) // EPOCHS
    assert held.seen == whole.seen[per_epoch:]
    assert torch.equal(held.weights, whole.weights)
    assert bare.seen == whole.seen[: 2 * per_epoch]


@through_lightning
def test_lightning_finds_an_empty_pass_after_each_epoch_of_a_bare_loader(runs):
    """A difference, and why StepDataset is there: Lightning never asks for the step after the last of an epoch."""
    assert runs.train(loader_of()).seen == list(epochs_of(loader_of(), epochs=2))
    assert runs.train(StepDataset(loader_of())).seen == list(epochs_of(loader_of()))
