"""What a look at a step shows is what the loader returns there, and every slot of it is accounted for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed_caches import table
from small_blocks import small_cache
from small_documents import small_document_cache
from small_micro_batches import assert_same

from packer.errors import UsageError
from packer.load import PackedLoader, view_batch
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache

BATCHINGS = ["packed", "padded", "padding_free", "token_budget"]


def cache_of(batching):
    return small_cache(20) if batching == "packed" else small_document_cache(20)[0]


def sizes_of(batching, world_size):
    size = 24 if batching == "token_budget" else 1
    return {"micro_batch_size": size, "global_batch_size": 2 * size * world_size}


@given(
    batching=st.sampled_from(BATCHINGS),
    world_size=st.integers(1, 3),
    seed=st.integers(0, 3),
    order=st.sampled_from(["random", "sequential"]),
    epoch=st.integers(0, 2),
    data=st.data(),
)
def test_a_step_is_shown_as_the_loader_returns_it(batching, world_size, seed, order, epoch, data):
    """Read literally: every step before it too, on that rank."""
    cache, sizes = cache_of(batching), sizes_of(batching, world_size)
    rank = data.draw(st.integers(0, world_size - 1))
    common = {"batching": batching, "rank": rank, "world_size": world_size, "seed": seed, "order": order, **sizes}
    loader = PackedLoader(cache, prefetch=0, **common)
    loader.set_epoch(epoch)
    steps = list(loader)
    number = data.draw(st.integers(0, len(steps) - 1))
    micro_batch = data.draw(st.integers(0, len(steps[number]) - 1))
    source = data.draw(st.sampled_from([cache, cache.folder]))
    view = view_batch(source, step=number, epoch=epoch, micro_batch=micro_batch, **common)
    assert_same(view.micro_batch, steps[number][micro_batch])
    assert view.step.block_ids.tolist() == steps[number].block_ids.tolist()
    assert view.step.num_items_in_batch == steps[number].num_items_in_batch
    assert view.check.ok, str(view.check)


@pytest.mark.parametrize(
    "rules",
    [{"block_len": 96, "align": 8}, {"block_len": 30, "overlong": "split"}, {"block_len": 64, "mode": "stream"}],
)
def test_parts_of_blocks_are_the_pieces_of_the_files_and_what_is_between_them(rules, starter, tmp_path):
    ids = [list(range(20, 20 + length)) for length in range(3, 40)]
    rows = [json.dumps({"input_ids": row, "labels": [-100, *row[1:]]}) + "\n" for row in ids]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    recipe = {"sources": [{"path": str(tmp_path / "rows.jsonl")}], "tokenizer": str(starter / "tokenizer")}
    build(make_recipe(recipe | {"pack": rules}), tmp_path / "cache", jobs=1)
    cache = Cache.open(tmp_path / "cache")
    blocks = table(tmp_path / "cache", "blocks", "train")
    num_padding = 0
    for step in range(0, len(blocks) // 2, max(len(blocks) // 20, 1)):
        view = view_batch(cache, step=step, micro_batch_size=2, order="sequential")
        at, pieces = 0, []
        for part in view.parts:
            length = len(part.input_ids)
            assert (part.row, part.start) == (0, at)
            assert part.input_ids.tolist() == view.micro_batch["input_ids"][0, at : at + length].tolist()
            assert part.labels.tolist() == view.micro_batch["labels"][0, at : at + length].tolist()
            ends = view.micro_batch["position_ids"][0, [at, at + length - 1]].tolist()
            assert part.positions == tuple(ends)
            if part.doc_id is not None:
                pieces.append((part.doc_id, part.piece_start, length, at))
            else:
                assert (part.labels == -100).all()
                num_padding += 1
            at += length
        assert at == view.micro_batch["input_ids"].numel()
        expected = [
            (*piece[:3], piece[3] + place * rules["block_len"])
            for place, row in enumerate(view.step.block_ids.tolist())
            for piece in zip(*(blocks[row][name] for name in ("doc_ids", "doc_starts", "doc_lengths", "doc_places")), strict=True)
        ]  # fmt: skip
        assert pieces == expected
        assert view.check.ok, str(view.check)
    assert num_padding


@pytest.mark.parametrize("batching", ["padded", "padding_free"])
def test_parts_of_documents_are_whole_and_what_fills_their_rows(batching):
    cache, documents = small_document_cache(20)
    view = view_batch(cache, step=1, batching=batching, micro_batch_size=5)
    found = [part for part in view.parts if part.doc_id is not None]
    assert [part.input_ids.tolist() for part in found] == [
        documents[row].input_ids.tolist() for row in view.step.block_ids.tolist()
    ]
    assert [part.row for part in found] == (list(range(5)) if batching == "padded" else [0] * 5)
    assert sum(len(part.labels) for part in view.parts) == view.micro_batch["input_ids"].numel()
    assert (len(found) < len(view.parts)) == (batching == "padded")


def test_a_step_whose_labels_were_changed_on_the_way_does_not_pass(monkeypatch):
    from packer.store.numbered_rows import FoundRows

    values = FoundRows.values
    monkeypatch.setattr(
        FoundRows, "values", lambda self, name, *rest: values(self, name.replace("labels", "input_ids"), *rest)
    )
    found = view_batch(small_cache(20), micro_batch_size=4).check
    assert {"first_targets", "num_items"} <= {*found.failed}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"step": 10, "micro_batch_size": 2}, "no step 10 in epoch 0"),
        ({"rank": 1}, "no rank 1 of 1"),
        ({"micro_batch": 1}, "no micro-batch 1"),
        ({"global_batch_size": 21}, "exceeds the 20 blocks"),
        ({"split": "test"}, "no blocks of split 'test'"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(arguments, words):
    with pytest.raises(UsageError, match=words) as caught:
        view_batch(small_cache(20), **arguments)
    assert caught.value.hint
    assert "global_batch_size" not in arguments or caught.value.hint.startswith("global_batch_size=20 or less")
