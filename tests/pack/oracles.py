"""What packing means, item by item and token by token; slow on purpose."""

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
        for number in range(len(bins)):
            if bins[number] + lengths[at] <= capacity:
                place(at + 1, [*bins[:number], bins[number] + lengths[at], *bins[number + 1 :]])
        place(at + 1, [*bins, lengths[at]])

    place(0, [])
    return best


def blocks_of(plan):
    """Documents of each block."""
    return [plan.document[first:last].tolist() for first, last in pairwise(plan.block_offsets.tolist())]


def literal_blocks(plan, documents, block_len, pad_id):
    """Each block as lists: ids, labels, positions, weights, run lengths, (document, start) of each piece.

    A document is (ids, labels, weights).
    """
    blocks = []
    for first, last in pairwise(plan.block_offsets.tolist()):
        ids, labels, positions, weights, runs, pieces = [], [], [], [], [], []
        for piece in range(first, last):
            document, start, length = (int(column[piece]) for column in (plan.document, plan.start, plan.length))
            for t in range(length):
                ids.append(documents[document][0][start + t])
                labels.append(documents[document][1][start + t] if t else -100)
                weights.append(documents[document][2][start + t] if t else 0.0)
                positions.append(t)
            runs.append(length)
            pieces.append((document, start))
        padding = block_len - len(ids)
        if padding:
            runs.append(padding)
        ids += [pad_id] * padding
        labels += [-100] * padding
        weights += [0.0] * padding
        positions += range(padding)
        blocks.append((ids, labels, positions, weights, runs, pieces))
    return blocks
