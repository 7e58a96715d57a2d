"""What other packers are known to answer, as values: packer gives the same borders.

TRL itself is run beside packer in tests/conformance/test_packing_libraries.py.

| source | what it is |
| --- | --- |
| LLaMA-Factory v1 | its padding-free collator, with `cutoff_len` |
| NeMo Automodel | `pack_dataset` and its variant for context parallel (`cp_size`) |

Where packer differs, on purpose:

- Blocks are stored in a keyed-permuted order, and the longest document of a block comes first: here documents are placed
  in their order, as others do.
- The first token of a row is masked too: flattened, it follows another row's last token.
- Padding is a run of its own, the last entry of `seq_lengths`, with positions of its own. Others leave it out or count
  it to the last document.
"""

import numpy as np
from pack.cases import make_columns

from packer.batches import PackPlan
from packer.layout import offsets_of
from packer.pack.pieces import gather

PAD = 0


def in_order(documents, sizes, block_len, *, align=1):
    """Documents as others place them: the first ones in the first block, as many as `sizes` says."""
    lengths = np.array([len(ids) for ids in documents], np.int32)
    layout = PackPlan(
        document=np.arange(len(documents)),
        start=np.zeros(len(documents), np.int64),
        length=lengths,
        slots=-(-lengths // align) * align,
        block_offsets=offsets_of(sizes),
    )
    columns = make_columns([(ids, ids, [1.0] * len(ids)) for ids in documents], [0] * len(documents), weighted=False)
    return gather(layout, columns, block_len=block_len, pad_id=PAD)


def rows(batch):
    """(ids without padding, run lengths without the padding run) of each block."""
    found = []
    for row in range(batch.num_blocks):
        runs = batch.seq_lengths[batch.seq_offsets[row] : batch.seq_offsets[row + 1]].tolist()
        filled = int(batch.length[row])
        assert sum(runs) == batch.input_ids.shape[1]
        assert batch.input_ids[row, filled:].tolist() == [PAD] * (len(batch.input_ids[row]) - filled)
        if filled < batch.input_ids.shape[1]:
            assert runs.pop() == batch.input_ids.shape[1] - filled
        found.append((batch.input_ids[row, :filled].tolist(), runs))
    return found


def test_llama_factory_v1():
    """Its labels are [0, 1, -100, 11, 12]; packer masks the very first token too."""
    documents = [ids[:3] for ids in ([0, 1], [10, 11, 12, 13])]  # cutoff_len 3
    batch = in_order(documents, [2], 5)
    assert batch.input_ids.tolist() == [[0, 1, 10, 11, 12]]
    assert batch.position_ids.tolist() == [[0, 1, 0, 1, 2]]
    assert batch.labels.tolist() == [[-100, 1, -100, 11, 12]]


NEMO = [[1, 2, 3], [4, 5, 6, 7], [8, 9], [10, 11, 12, 13, 14]]


def test_nemo_automodel():
    """Its positions end in 0, 1, 2: it counts the padding to the last document. Packer's padding begins at 0 again."""
    batch = in_order(NEMO, [3, 1], 10)
    assert batch.input_ids.tolist()[0] == [1, 2, 3, 4, 5, 6, 7, 8, 9, PAD]
    assert rows(batch) == [([1, 2, 3, 4, 5, 6, 7, 8, 9], [3, 4, 2]), ([10, 11, 12, 13, 14], [5])]
    assert batch.position_ids.tolist()[0] == [0, 1, 2, 0, 1, 2, 3, 0, 1, 0]


def test_nemo_automodel_for_context_parallel_of_two():
    """Lengths 3 and 5 take multiples of 2·cp = 4. It counts the padding run to the last document: 12 = 8 + 4."""
    batch = in_order([[1, 2, 3], [4, 5, 6, 7, 8]], [2], 16, align=4)
    assert batch.doc_lengths.tolist() == [3, 5]
    assert batch.seq_lengths.tolist() == [4, 8, 4]
    assert [4, int(batch.seq_lengths[1:].sum())] == [4, 12]
    assert batch.input_ids.tolist() == [[1, 2, 3, PAD, 4, 5, 6, 7, 8, PAD, PAD, PAD, PAD, PAD, PAD, PAD]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]]
    assert batch.labels.tolist() == [[-100, 2, 3, -100, -100, 5, 6, 7, 8, *[-100] * 7]]
