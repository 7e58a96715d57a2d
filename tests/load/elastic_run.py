"""Some steps of a tiny float64 decoder, alone or under torchrun: ``torchrun ... elastic_run.py SETTINGS.json``.

Settings: ``cache``, ``report`` (a file rank 0 writes), ``num_steps``, ``loader`` (options), and where a distributed checkpoint
is loaded from or saved to: ``resume``, ``save``, either may be null.
"""

import json
import os
import sys
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import torch
from tiny_decoder import TinyDecoder, summed_loss
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from packer.errors import UsageError
from packer.load import PackedLoader
from packer.load.attention import block_diagonal_mask, document_ids


def model_and_optimizer():
    model = TinyDecoder()
    return model, torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def train(loader, model, optimizer, num_steps, *, world_size=1):
    """Losses and block numbers of the whole of each step, over all ranks."""
    losses, blocks = [], []
    for step in islice(loader.endless(), num_steps):
        optimizer.zero_grad()
        loss = torch.zeros((), dtype=torch.float64)
        for i, micro_batch in enumerate(step):
            last = i == len(step) - 1
            with nullcontext() if last or world_size == 1 else model.no_sync():
                mask = block_diagonal_mask(document_ids(micro_batch["cu_seq_lens_q"]))[None, None]
                logits = model(micro_batch["input_ids"], micro_batch["position_ids"], mask)
                part = summed_loss(logits, micro_batch["labels"]) / step.num_items_in_batch
                (part * world_size).backward()  # gradients are averaged over the ranks; the sum is wanted
            loss += part.detach()
        optimizer.step()
        losses.append(summed(loss, world_size))
        blocks.append(sorted(gathered(step.block_ids.tolist(), world_size)))
    loader.close()
    return losses, blocks


def summed(loss, world_size):
    if world_size > 1:
        distributed.all_reduce(loss)
    return loss.item()


def gathered(block_ids, world_size):
    if world_size == 1:
        return block_ids
    parts = [None] * world_size
    distributed.all_gather_object(parts, block_ids)
    return [block for part in parts for block in part]


def refusal(settings):
    """What a loader says that is opened before the processes know of each other."""
    try:
        PackedLoader(settings["cache"], **settings["loader"])
    except UsageError as error:
        return error.message
    return None


def refusals_of_different_seeds(settings):
    """What the first or second step of each rank is refused with; ranks act one after another, and none waits."""
    steps = iter(PackedLoader(settings["cache"], **settings["loader"] | {"seed": distributed.get_rank()}))
    said, refusals = None, [None] * distributed.get_world_size()
    for turn in range(2 * len(refusals)):
        if turn % len(refusals) == distributed.get_rank() and said is None:
            try:
                next(steps)
            except UsageError as error:
                said = error.message
        distributed.barrier()
    distributed.all_gather_object(refusals, said)
    return refusals


def resume(model, optimizer, loader, place):
    """Go on from a distributed checkpoint."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model_state, optimizer_state = get_state_dict(model, optimizer)
    saved = {"model": model_state, "optimizer": optimizer_state, "reader": loader}
    checkpoint.load(saved, checkpoint_id=place)
    set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])


def main(settings):
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict

    too_early = refusal(settings)
    distributed.init_process_group("gloo")
    world_size = distributed.get_world_size()
    refusals = refusals_of_different_seeds(settings)
    plain, optimizer = model_and_optimizer()
    model = DistributedDataParallel(plain)
    loader = PackedLoader(settings["cache"], **settings["loader"])
    if settings["resume"]:
        resume(plain, optimizer, loader, settings["resume"])
    losses, blocks = train(loader, model, optimizer, settings["num_steps"], world_size=world_size)
    if settings["save"]:
        model_state, optimizer_state = get_state_dict(plain, optimizer)
        saved = {"model": model_state, "optimizer": optimizer_state, "reader": loader}
        checkpoint.save(saved, checkpoint_id=settings["save"])
    if distributed.get_rank() == 0:
        report = {"world_size": world_size, "too_early": too_early, "refusals": refusals}
        report |= {"losses": losses, "blocks": blocks, "weights": plain.state_dict()}
        torch.save(report, settings["report"])
    distributed.barrier()
    # Taken down in order, gloo can wait for itself: the interpreter lock is held while its thread is waited for, and the
    # thread may want that lock to let go of the tensors of the last exchange.
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text("utf-8")))
