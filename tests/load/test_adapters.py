"""Micro-batches as Hugging Face models take them, and the refusal of what these would misread in silence."""

import contextlib

import pytest
import torch
from small_micro_batches import flattened, padded, rows

from packer.errors import UsageError
from packer.load import shift_labels
from packer.load.adapters import huggingface
from packer.load.contract import check_batch


@pytest.mark.parametrize(
    ("micro_batch", "names"),
    [
        (flattened([3, 2], padding=2), {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"}),
        (padded([3, 5], side="left"), {"attention_mask"}),
        (padded([3, 5], side="right"), {"attention_mask"}),
    ],
)
def test_a_micro_batch_goes_with_what_keeps_its_documents_apart_and_without_a_cache(micro_batch, names):
    arguments = huggingface(micro_batch, None)
    assert arguments == {**micro_batch, "use_cache": False}
    assert set(arguments) == {"input_ids", "labels", "position_ids", "use_cache"} | names
    assert "use_cache" not in micro_batch


@pytest.mark.parametrize(
    ("release", "installed", "is_refused"),
    [
        ("5.17.0", (), True),
        ("5.19.1", ("causal_conv1d",), True),
        ("5.19.1", ("causal_conv1d", "mamba_ssm"), False),
        ("5.19.1", ("kernels",), False),
        ("5.20.0.dev0", (), False),
        ("5.23.0", (), False),
        ("6.0.0", (), False),
    ],
)
def test_seq_idx_is_refused_where_transformers_ignores_it(monkeypatch, release, installed, is_refused):
    """5.17 runs Bamba without kernels, and its documents see each other; 5.20 raises an error of its own."""
    monkeypatch.setattr("packer.load.adapters.version", lambda name: release)
    monkeypatch.setattr("packer.load.adapters.find_spec", lambda name: name if name in installed else None)
    if is_refused:
        with pytest.raises(UsageError, match=r"before 5\.20 then ignores it"):
            huggingface(flattened([3, 2]), None, seq_idx=True)
        with pytest.raises(UsageError, match=r"then ignores it \(layer 1, linear_attention\)"):
            huggingface(flattened([3, 2]), Config(layer_types=["full_attention", "linear_attention", "mamba"]))
        assert huggingface(flattened([3, 2]), None)
    else:
        assert huggingface(flattened([3, 2]), None, seq_idx=True)["seq_idx"].tolist() == [[0, 0, 0, 1, 1]]


class Config:
    """A config of transformers, as far as the adapter looks."""

    def __init__(self, inner=None, **values):
        self.inner = inner
        self.__dict__.update(values)

    def get_text_config(self):
        return self.inner or self


@pytest.mark.parametrize("nested", [False, True])
def test_a_config_says_what_keeps_documents_apart(nested):
    def arguments(micro_batch, **values):
        config = Config(**values)
        return huggingface(micro_batch, Config(config) if nested else config)

    flat = flattened([3, 2])
    in_3d = {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1]}}
    positions = arguments(flat, **in_3d)["position_ids"]
    assert positions.shape == (4, 1, 5) and all(torch.equal(each, flat["position_ids"]) for each in positions)
    assert check_batch(arguments(flat, **in_3d), pad_id=0).ok
    assert arguments(padded([3, 2]), **in_3d)["position_ids"].shape == (2, 3)
    for kinds in (["full_attention", "sliding_attention"], None, []):
        assert "seq_idx" not in arguments(flat, layer_types=kinds, rope_parameters=None)
    for kind in ("linear_attention", "conv", "mamba"):
        assert "seq_idx" not in arguments(padded([3, 2]), layer_types=[kind])
        assert "seq_idx" not in arguments(flattened([5]), layer_types=[kind]), "of one document, nothing leaks"
        with contextlib.suppress(UsageError):  # by a transformers that would ignore it
            assert arguments(flat, layer_types=["full_attention", kind])["seq_idx"].tolist() == [[0, 0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("micro_batch", "options", "message", "hint"),
    [
        (rows([3, 2]), {}, "several rows", "flatten=True"),
        (rows([3, 2]), {"seq_idx": True}, "several rows", "flatten=True"),
        (shift_labels(flattened([3, 2])), {}, "labels are already shifted", "unshifted"),
        (shift_labels(padded([3, 2])), {}, "labels are already shifted", "unshifted"),
        (
            {**flattened([3, 2]), "attention_mask": torch.ones(1, 5)},
            {},
            "overlooks the boundaries",
            "remove attention_mask",
        ),
        ({**flattened([3, 2]), "input_ids": torch.ones(2, 5)}, {}, "beside 2 rows", "batch dimension"),
        (padded([3, 2]), {"seq_idx": True}, "one document each", "leave seq_idx out"),
        ({"input_ids": torch.ones(1, 5)}, {}, "does not say where", "as the loader gives it"),
    ],
)
def test_what_a_model_would_misread_in_silence_is_refused_with_a_way_out(micro_batch, options, message, hint):
    with pytest.raises(UsageError) as caught:
        huggingface(micro_batch, None, **options)
    assert message in caught.value.message
    assert hint in caught.value.hint
