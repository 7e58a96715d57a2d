"""What packing means, item by item and token by token; slow on purpose."""

from bisect import bisect_left, insort
from itertools import pairwise


def literal_best_fit_decreasing(lengths, capacity):
    """Each item into the fullest bin that holds it, the first opened among equals; O(items · bins)."""
    bins = []
    for length in sorted(lengths, reverse=True):
        holding = [number for number, items in enumerate(bins) if capacity - sum(items) >= length]
        if holding:
            fullest = max(sum(bins[number]) for number in holding)
            bins[next(number for number in holding if sum(bins[number]) == fullest)].append(length)
        else:
            bins.append([length])
    return bins


def best_fit_count(lengths, capacity):
    """The number of bins of best-fit decreasing, by a sorted list of free spaces; fast enough for many items."""
    spaces = []
    num_bins = 0
    for length in sorted(lengths, reverse=True):
        at = bisect_left(spaces, length)
        if at == len(spaces):
            num_bins += 1
            space = capacity
        else:
            space = spaces.pop(at)
        insort(spaces, space - length)
    return num_bins


def optimum(lengths, capacity):
    """The least number of bins, by trying every way."""
    best = len(lengths)

    def place(at, bins):
        nonlocal best
        if len(bins) >= best:
            return
        if at == len(lengths):
            best = len(bins)
            return
        for number, filled in enumerate(bins):
            if filled + lengths[at] <= capacity:
                place(at + 1, [*bins[:number], filled + lengths[at], *bins[number + 1 :]])
        place(at + 1, [*bins, lengths[at]])

    place(0, [])
    return best


def literal_cut(lengths, trained, block_len, overlong):
    """What becomes of each token: pieces as lists of tokens, and the reason of every token that is in none.

    ``trained[d]`` is the set of trained tokens of document d.
    """
    pieces, reasons = [], {}

    def leave_out(document, tokens, reason):
        reasons.update({(document, t): reason for t in tokens})

    def keep(document, tokens, *, is_cut):
        if is_cut and not trained[document] & set(tokens[1:]):
            leave_out(document, tokens, "untrained")
        else:
            pieces.append((document, tokens))

    for document, length in enumerate(lengths):
        tokens = list(range(length))
        if not tokens:
            continue
        if length <= block_len:
            keep(document, tokens, is_cut=False)
        elif overlong == "reject":
            leave_out(document, tokens, "overlong")
        elif overlong == "truncate_right":
            keep(document, tokens[:block_len], is_cut=True)
            leave_out(document, tokens[block_len:], "truncated")
        else:
            while tokens:
                keep(document, tokens[:block_len], is_cut=True)
                tokens = tokens[block_len:]
    return pieces, reasons


def literal_stream(documents, lengths, trained, block_len):
    """The stream of the documents in this order: blocks as lists of (document, first token, tokens), and the reason of
    every token that is in none.

    ``trained[d]`` is the set of trained tokens of document d.
    """
    reasons = {}
    tape = [(d, t) for d in documents for t in range(lengths[d])]
    blocks = []
    while tape:
        tokens, tape = tape[:block_len], tape[block_len:]
        pieces = []
        for document, t in tokens:
            if pieces and pieces[-1][0] == document:
                pieces[-1][2] += 1
            else:
                pieces.append([document, t, 1])
        if any(trained[d] & set(range(start + 1, start + length)) for d, start, length in pieces):
            blocks.append([tuple(piece) for piece in pieces])
        else:
            reasons.update(dict.fromkeys(tokens, "untrained"))
    return blocks, reasons


def pieces_of_blocks(plan):
    """(document, first token, tokens) of the pieces of each block."""
    rows = list(zip(plan.document.tolist(), plan.start.tolist(), plan.length.tolist(), strict=True))
    return [rows[first:last] for first, last in pairwise(plan.block_offsets.tolist())]


def reasons_of(left_out, names):
    """The reason of every token of a ledger; the tokens of its ranges are all different."""
    ranges = zip(left_out.document.tolist(), left_out.start.tolist(), left_out.length.tolist(), strict=True)
    reasons = {}
    for (document, start, length), reason in zip(ranges, left_out.reason.tolist(), strict=True):
        mine = {(document, t): names[reason] for t in range(start, start + length)}
        assert not mine.keys() & reasons.keys()
        reasons |= mine
    return reasons


def blocks_of(plan):
    """Documents of each block."""
    return [plan.document[first:last].tolist() for first, last in pairwise(plan.block_offsets.tolist())]


def literal_blocks(plan, documents, block_len, pad_id, *, one_run=False):
    """Each block as lists: ids, labels, positions, run lengths, (document, start, length, place) of each piece.

    A document is (ids, labels). The slots a piece takes beyond its tokens hold padding.
    """
    blocks = []
    for first, last in pairwise(plan.block_offsets.tolist()):
        ids, labels, runs, pieces = [], [], [], []
        for piece in range(first, last):
            document, start, length = (int(column[piece]) for column in (plan.document, plan.start, plan.length))
            pieces.append((document, start, length, len(ids)))
            for t in range(length):
                ids.append(documents[document][0][start + t])
                labels.append(documents[document][1][start + t] if t else -100)
            behind = int(plan.slots[piece]) - length
            ids += [pad_id] * behind
            labels += [-100] * behind
            runs.append(length + behind)
        if one_run:
            runs = [sum(runs)]
        padding = block_len - len(ids)
        if padding:
            runs.append(padding)
        ids += [pad_id] * padding
        labels += [-100] * padding
        positions = [position for run in runs for position in range(run)]
        blocks.append((ids, labels, positions, runs, pieces))
    return blocks
