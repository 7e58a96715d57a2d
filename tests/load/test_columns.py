"""Columns beside the ids, as training reads them: each value is at its token, however documents are cut and packed."""

import functools
import json
import pickle
import shutil
from collections import Counter

import pytest
import torch
from column_rows import COLUMNS, NAMES, check_micro_batch, rows_of
from hypothesis import given
from hypothesis import strategies as st
from search_effort import percent_of_examples

from packer.errors import CheckError, UsageError
from packer.load import Mixture, PackedDataset, PackedLoader, Padded, collate
from packer.pipeline.from_python import build
from packer.store.manifest import sealed

PACKS = [
    {"overlong": "split"},
    {"align": 8, "overlong": "truncate_right"},
    {"mode": "stream"},
]
LAYOUTS = [
    {},
    {"flatten": False, "labels": "shifted"},
    {"labels": "shifted"},
    {"batching": Padded(side="left")},
    {"batching": "padded", "labels": "shifted"},
    {"batching": "padding_free", "order": "length_bucketed"},
    {"batching": "token_budget", "micro_batch_size": 64, "global_batch_size": 128},
]


@pytest.fixture(scope="module")
def cache_of(starter, tmp_path_factory):
    @functools.cache
    def made(*lengths, **pack):
        folder = tmp_path_factory.mktemp("columns") / "cache"
        rows = rows_of(lengths)
        options = {"tokenizer": starter / "tokenizer", "pack": {"block_len": 16, **pack}, **COLUMNS}
        build(rows, folder, jobs=1, fail_above=1, progress=None, **options)
        return folder, rows

    return made


def read(folder, rows, *, resume=None, **layout):
    """(row, token) of everything that two ranks read in an epoch, which may end and resume after some steps."""
    layout = {"micro_batch_size": 2, "global_batch_size": 4, "end": "pad", "prefetch": 0, **layout}
    found = []
    for rank in (0, 1):
        loader = PackedLoader(folder, rank=rank, world_size=2, columns=NAMES, **layout)
        for number, step in enumerate(iter(loader), start=1):
            found += [each for micro_batch in step for each in check_micro_batch(micro_batch, rows)]
            if number == resume:
                break
        if resume is not None:
            state = json.loads(json.dumps(loader.state_dict()))
            loader = PackedLoader(folder, rank=rank, world_size=2, columns=NAMES, **layout)
            loader.load_state_dict(state)
            found += [each for step in loader for mb in step for each in check_micro_batch(mb, rows)]
        loader.close()
    return found


@percent_of_examples(25)
@given(st.lists(st.integers(3, 40), min_size=5, max_size=7), st.sampled_from(PACKS), st.sampled_from([None, 1]))
def test_each_value_is_at_its_token_in_every_layout(cache_of, lengths, pack, resume):
    folder, rows = cache_of(*lengths, **pack)
    lines = [json.loads(line) for line in (folder / "rejected.jsonl").read_text("utf-8").splitlines()]
    lost = sum(line["tokens"] for line in lines)
    for layout in LAYOUTS:
        found = read(folder, rows, resume=resume, **layout)
        assert max(Counter(found).values()) == 1, "each token once"
        most = sum(lengths) - (0 if "batching" in layout else lost)
        # Once labels are shifted, the first token of a line has no place.
        assert len(found) == most if layout.get("labels") != "shifted" else most / 2 < len(found) < most


def logits_of(ids):
    """Of a model that looks at each token alone, in double precision."""
    table = torch.randn(200, 200, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return table[ids % 200]


def losses_at(ids, labels, values):
    """Summed policy gradient and KL on the top three, over targets; all of them shifted, [T] or [T, 3]."""
    logps, is_target = logits_of(ids).log_softmax(-1), labels != -100
    of_targets = logps.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    ratio = (of_targets - values["logp"]).exp()
    gradient = -(ratio * values["reward"] * is_target).sum()
    teacher = torch.softmax(values["top"].double() / 7, -1)
    student = logps.gather(-1, values["top"].clamp(min=0) % 200)
    return torch.stack([gradient, ((teacher * (teacher.log() - student)).sum(-1) * is_target).sum()])


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_kl_and_a_policy_gradient_over_packed_rows_are_those_of_single_documents(cache_of, layout):
    folder, rows = cache_of(7, 12, 16, 5, 9, 3, 2, 15, align=2)
    expected = torch.zeros(2, dtype=torch.float64)
    for row in rows:
        ids, labels = torch.tensor(row["input_ids"]), torch.tensor(row["labels"])
        values = {name: torch.tensor(row[name])[1:] for name in ("logp", "top")} | {"reward": row["reward"]}
        expected += losses_at(ids[:-1], labels[1:], values)
    found = torch.zeros(2, dtype=torch.float64)
    layout = {"micro_batch_size": 2, "global_batch_size": 4, "end": "pad", **layout}
    for rank in (0, 1):
        for step in PackedLoader(folder, rank=rank, world_size=2, columns=NAMES, **layout):
            for batch in step:
                if "shift_labels" in batch:
                    found += losses_at(batch["input_ids"], batch["shift_labels"], batch["shift_columns"])
                else:
                    values = {name: each[:, 1:] for name, each in batch["columns"].items()}
                    found += losses_at(batch["input_ids"][:, :-1], batch["labels"][:, 1:], values)
    assert (expected.abs() > 1).all()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_items_of_a_dataset_have_them_also_in_another_process(cache_of):
    folder, rows = cache_of(7, 12, 16, 5, 9, 3, 2, 15, 30, overlong="split", align=2)
    items = pickle.loads(pickle.dumps(PackedDataset(folder, columns=NAMES)))
    batch = collate([items[number] for number in range(len(items))])
    found = check_micro_batch(batch, rows)
    assert len(found) == len(set(found)) == sum(map(len, (row["input_ids"] for row in rows)))
    assert "columns" not in collate([PackedDataset(folder)[0]])
    with pytest.raises(UsageError, match="has no column other"):
        PackedDataset(folder, columns=["other"])


def test_pairs_have_the_value_of_their_row_at_both_answers(starter, tmp_path):
    pairs = [{"prompt": f"ask {i}", "chosen": "yes " * (i + 1), "rejected": "no", "reward": i / 2} for i in range(6)]
    options = {"tokenizer": starter / "tokenizer", "document_columns": COLUMNS["document_columns"]}
    build(pairs, tmp_path / "cache", jobs=1, progress=None, **options)
    seen = 0
    for step in PackedLoader(tmp_path / "cache", batching="padded", micro_batch_size=2, columns=["reward"]):
        for batch in step:
            owners = batch["pair_ids"].repeat(2) / 2
            expected = torch.where(batch["attention_mask"] == 1, owners[:, None].float(), torch.tensor(-5.0))
            torch.testing.assert_close(batch["columns"]["reward"], expected)
            seen += 1
    assert seen == 3


def test_caches_of_a_mixture_have_the_same_columns(cache_of, starter, tmp_path):
    folders = [cache_of(7, 12, 30, 5, overlong="split", seed=seed)[0] for seed in range(2)]
    rows = rows_of([7, 12, 30, 5])
    loader = PackedLoader(Mixture(dict.fromkeys(folders, 0.5)), columns=NAMES, end="short")
    found = [each for step in loader for batch in step for each in check_micro_batch(batch, rows)]
    assert max(Counter(found).values()) == 2
    with pytest.raises(UsageError, match="has no column other"):
        PackedLoader(folders[0], columns=["other"])
    narrow = {name: {**rule, "missing": 3} for name, rule in COLUMNS["token_columns"].items()}
    build(
        rows,
        tmp_path / "c",
        tokenizer=starter / "tokenizer",
        token_columns=narrow,
        pack={"block_len": 16},
        fail_above=1,
    )
    with pytest.raises(UsageError, match="column at is not the same in all caches"):
        PackedLoader(Mixture({folders[0]: 0.5, tmp_path / "c": 0.5}), columns=["at"])


WRITTEN = '"kind":"int32","missing":-1'


@pytest.mark.parametrize(
    ("forged", "message"),
    [
        ('"kind":"int32","missing":1e39', "expected a whole number of 32 bits"),
        ('"kind":"int32","missing":99999999999', "expected a whole number of 32 bits"),
        ('"kind":"int32","missing":-1.5', "expected a whole number of 32 bits"),
        ('"kind":"float32","missing":-1', "lacks the column at, which the recipe declares"),
    ],
)
def test_a_forged_manifest_declares_no_column_that_cannot_be_or_is_not_there(cache_of, forged, message, tmp_path):
    folder = shutil.copytree(cache_of(7, 12, 13)[0], tmp_path / "cache")
    text = (folder / "manifest.json").read_text("utf-8")
    assert WRITTEN in text
    (folder / "manifest.json").write_bytes(sealed(b"{\n" + text.replace(WRITTEN, forged).split(",\n", 1)[1].encode()))
    with pytest.raises(CheckError, match=message):
        next(iter(PackedLoader(folder, columns=["at"])))
