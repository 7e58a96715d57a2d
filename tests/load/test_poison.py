"""The poison test distinguishes a model that honors boundaries from one that leaks, and is never vacuous."""

from importlib.util import find_spec

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_micro_batches import flattened, padded, rows
from tiny_decoder import TinyDecoder

from packer.errors import UsageError
from packer.load import poison_test, shift_labels
from packer.load.adapters import huggingface
from packer.load.attention import block_diagonal_mask, documents_of
from packer.load.poison import spans_of

LENGTHS = [5, 9, 1, 4]
SMALL = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Tensors here are so small that threads would do nothing but wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


HYBRID = {"mamba_d_state": 8, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_chunk_size": 8}
MODELS = {
    "llama": {},
    "mistral": {"sliding_window": 3},
    "gpt2": {"n_positions": 64},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 2, "chunk_size": 8},
    "bamba": {**HYBRID, "attn_layer_indices": [1]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 1, "num_experts_per_tok": 1, "mamba_d_state": 8,
              "mamba_dt_rank": 4, "initializer_range": 0.1},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 3, "head_dim": 8},
    "opt": {"ffn_dim": 32, "word_embed_proj_dim": 32, "max_position_embeddings": 64},
    "mixtral": {"num_local_experts": 4},
    "qwen3_5_text": {"num_hidden_layers": 4, "head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 2},
}  # fmt: skip
"""What families want beside the sizes of all. Bamba has a layer of Mamba-2 and one of attention."""


def model_of(name, attention="sdpa"):
    t = pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: real models are not tested")
    attend = {"attn_implementation": attention}
    torch.manual_seed(0)
    return t.AutoModelForCausalLM.from_config(t.AutoConfig.for_model(name, **SMALL | MODELS[name]), **attend)


def with_arguments(model, **changed):
    """Logits of a Hugging Face model that is called otherwise than the adapter would."""
    return lambda micro_batch: model(**{**huggingface(micro_batch, model.config), **changed}).logits


def mask_of(micro_batch):
    """The boundaries as a mask of four dimensions."""
    return block_diagonal_mask(documents_of(micro_batch))[:, None]


def leaked_into(report):
    return sorted({leak.target for leak in report.leaks})


ATTENTION_MODELS = [("llama", "sdpa"), ("mistral", "sdpa"), ("gpt2", "eager")]


# In packer's form, boundaries hold


@pytest.mark.parametrize(("name", "attention"), ATTENTION_MODELS)
def test_models_honor_the_boundaries_of_a_flattened_micro_batch_by_masks_that_they_make_themselves(name, attention):
    model, micro_batch = model_of(name, attention), flattened(LENGTHS, padding=6)
    assert "attention_mask" not in huggingface(micro_batch, model.config)
    report = poison_test(model, micro_batch, alone=True)
    assert report, str(report)
    assert "boundaries hold" in str(report) and f"attn_implementation {attention}" in str(report)
    assert report.noise == 0
    assert len(report.alone) == 5 and max(report.alone.values()) < 1e-6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what FlexAttention warns of where it is not compiled
def test_models_with_flex_attention_honor_the_boundaries_and_leak_beside_a_cache():
    """As it is written, and so by the same mask: compiling it takes half a minute."""
    model = model_of("llama", "flex_attention")
    with torch.compiler.set_stance("force_eager"):
        report = poison_test(model, flattened(LENGTHS, padding=6), alone=True)
        leaking = poison_test(model, flattened(LENGTHS), logits=with_arguments(model, use_cache=True))
    assert report, str(report)
    assert not leaking


@pytest.mark.parametrize(
    ("name", "attention", "side"), [("llama", "sdpa", "left"), ("mistral", "sdpa", "right"), ("gpt2", "eager", "left")]
)
def test_models_honor_the_rows_and_the_padding_of_a_padded_micro_batch(name, attention, side):
    report = poison_test(model_of(name, attention), padded(LENGTHS, side=side), alone=True)
    assert report, str(report)
    assert sum(span.is_padding for span in report.spans) == 3
    assert len(report.alone) == 4


# Leaks, each with its cause


def check_leak_of_what_stands_before(report):
    assert not report
    assert "boundaries leak" in str(report) and "what to do" in str(report)
    assert report.leaks
    assert all(leak.is_forward and leak.difference > 0 for leak in report.leaks)
    largest = max(leak.difference for leak in report.leaks)
    assert largest > 1e-3  # a state fades with distance: not every leak is large
    assert 0 not in leaked_into(report)  # nothing stands before it


@pytest.mark.parametrize(("name", "attention"), ATTENTION_MODELS)
@pytest.mark.parametrize(("argument", "value"), [("use_cache", True), ("attention_mask", torch.ones(1, 25).long())])
def test_a_cache_or_a_mask_of_ones_makes_neighbors_visible(name, attention, argument, value):
    model = model_of(name, attention)
    report = poison_test(model, flattened(LENGTHS, padding=6), logits=with_arguments(model, **{argument: value}))
    check_leak_of_what_stands_before(report)
    assert argument in str(report)


def test_padding_that_no_mask_hides_leaks_from_the_left():
    model = model_of("gpt2")
    everything = torch.ones(4, 9, dtype=torch.int64)
    report = poison_test(model, padded(LENGTHS, side="left"), logits=with_arguments(model, attention_mask=everything))
    assert not report
    assert report.leaks and all(report.spans[leak.source].is_padding for leak in report.leaks)
    assert "padding is attended to" in str(report)


@pytest.mark.parametrize(("name", "attention"), [("gpt_oss", "eager"), ("opt", "sdpa")])
def test_models_that_make_masks_without_positions_get_masks_with_the_boundaries(name, attention):
    model = model_of(name, attention)
    report = poison_test(model, flattened(LENGTHS), alone=True)
    assert report, str(report)
    plain = poison_test(model, flattened(LENGTHS), logits=lambda b: model(**huggingface(b, None)).logits)
    assert not plain, "what the adapter guards against: transformers may mend it one day"
    assert poison_test(model, padded(LENGTHS), alone=True)


def test_linear_attention_keeps_documents_apart_with_its_kernels_or_is_refused():
    model = model_of("qwen3_5_text")
    if all(find_spec(kernels) for kernels in ("causal_conv1d", "fla")):
        assert poison_test(model, flattened(LENGTHS))
    else:
        with pytest.raises((ValueError, UsageError), match=r"can't keep packed sequences apart|before 5\.20"):
            poison_test(model, flattened(LENGTHS))
    assert poison_test(model, padded(LENGTHS))
    plain = poison_test(model, flattened(LENGTHS), logits=lambda b: model(b["input_ids"], use_cache=False).logits)
    check_leak_of_what_stands_before(plain)


# State space models


@pytest.mark.parametrize("name", ["mamba2", pytest.param("jamba", marks=pytest.mark.slow)])
def test_these_leak_in_a_packed_row_with_seq_idx_as_without_and_not_in_padded_rows(name):
    """Their layers make no use of seq_idx; should a release of transformers change it, this test will say so."""
    model = model_of(name, "eager")
    check_leak_of_what_stands_before(poison_test(model, flattened(LENGTHS)))
    report = poison_test(
        model, flattened(LENGTHS), logits=lambda b: model(**huggingface(b, model.config, seq_idx=True)).logits
    )
    check_leak_of_what_stands_before(report)
    assert "need padded micro" in str(report).replace("\n    ", " ")
    for side in ("left", "right"):
        report = poison_test(model, padded(LENGTHS, side=side), alone=True)
        assert report, str(report)


def test_hybrids_leak_without_seq_idx_and_refuse_it_without_their_kernels():
    model = model_of("bamba")
    report = poison_test(
        model, flattened(LENGTHS), logits=lambda b: model(**huggingface(b, model.config, seq_idx=False)).logits
    )
    check_leak_of_what_stands_before(report)
    assert "need the seq_idx" in str(report)
    assert poison_test(model, padded(LENGTHS))
    if all(find_spec(kernels) for kernels in ("causal_conv1d", "mamba_ssm")):
        assert poison_test(model, flattened(LENGTHS))
    else:
        with pytest.raises((ValueError, UsageError), match=r"can't keep packed sequences apart|before 5\.20"):
            poison_test(model, flattened(LENGTHS))


def test_experts_may_round_otherwise_and_a_tolerance_allows_it():
    model, micro_batch = model_of("mixtral"), flattened(LENGTHS)
    report = poison_test(model, micro_batch)
    assert all(leak.difference < 1e-4 for leak in report.leaks)
    assert poison_test(model, micro_batch, atol=1e-4, alone=True)


# Any other model, through `logits`


def masked_by(change=lambda mask: mask, model=None):
    model = model or TinyDecoder()
    return lambda b: model(b["input_ids"], b["position_ids"], change(block_diagonal_mask(documents_of(b))).unsqueeze(1))


@pytest.mark.parametrize("micro_batch", [flattened(LENGTHS, padding=3), rows(LENGTHS), padded(LENGTHS)])
def test_a_model_of_ones_own_holds_in_every_form(micro_batch):
    model = TinyDecoder()
    report = poison_test(model, micro_batch, logits=masked_by(model=model), alone=True)
    assert report, str(report)
    assert max(report.alone.values()) < 1e-12
    shifted = poison_test(model, shift_labels(micro_batch), logits=masked_by(model=model))
    assert shifted, str(shifted)


@given(lengths=st.lists(st.integers(1, 5), min_size=2, max_size=9), data=st.data())
def test_a_single_leak_between_any_two_sequences_is_found_with_its_source(lengths, data):
    number = st.integers(0, len(lengths) - 1)
    source, target = data.draw(st.tuples(number, number).filter(lambda pair: pair[0] != pair[1]))
    owner = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))

    def leaky(mask):
        return mask | ((owner == target)[:, None] & (owner == source)[None, :])

    report = poison_test(None, flattened(lengths), logits=masked_by(leaky))
    assert [(leak.source, leak.target, leak.is_forward) for leak in report.leaks] == [(source, target, source < target)]
    assert not report


def test_the_page_is_bounded_where_everything_leaks():
    report = poison_test(None, flattened([2] * 40), logits=masked_by(torch.ones_like))
    assert not report
    assert leaked_into(report) == list(range(40))
    assert len(str(report).splitlines()) < 25


def test_a_model_that_averages_over_everything_is_caught_also_between_rows():
    table = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))

    def logits(micro_batch):
        states = table[micro_batch["input_ids"]]
        return states + states.mean(dim=(0, 1), keepdim=True)

    for form in (flattened, rows, padded):
        report = poison_test(None, form(LENGTHS), logits=logits)
        assert not report
        assert not all(leak.is_forward for leak in report.leaks)
        assert "not causal attention" in str(report)
        assert leaked_into(report) == [at for at, span in enumerate(report.spans) if not span.is_padding]


def test_a_mean_over_a_sequence_that_holds_every_id_once_is_caught():
    """An exchange of ids that is the same everywhere would not move such a mean; small integers have no rounding."""
    micro_batch = flattened([8, 8, 8])
    micro_batch["input_ids"] = torch.arange(8).repeat(3)[None]
    table = torch.randint(0, 1000, (8, 8), generator=torch.Generator().manual_seed(0)).double()
    report = poison_test(
        None, micro_batch, logits=lambda b: table[b["input_ids"]] + table[b["input_ids"]].sum(1, keepdim=True)
    )
    assert leaked_into(report) == [0, 1, 2]


# Not vacuous


def test_a_model_that_ignores_its_input_is_named():
    report = poison_test(None, flattened(LENGTHS), logits=lambda b: torch.ones(*b["input_ids"].shape, 3))
    assert not report
    assert report.leaks == () and report.unmoved == (0, 1, 3)  # a document of one token trains nothing
    assert "the model ignores 3 sequences" in str(report)


def test_a_sequence_that_is_ignored_is_named_and_untrained_padding_may_be():
    micro_batch = flattened(LENGTHS, padding=4)

    def logits_without(*ignored):
        keep = ~torch.isin(documents_of(micro_batch), torch.tensor(ignored))
        return lambda b: (b["input_ids"] * keep)[..., None].float()

    assert poison_test(None, micro_batch, logits=logits_without(4))
    report = poison_test(None, micro_batch, logits=logits_without(1, 4))
    assert not report
    assert report.unmoved == (1,)
    assert "1 (row 0, positions 5 to 13)" in str(report)


def test_where_nothing_is_trained_every_sequence_has_to_move():
    micro_batch = flattened(LENGTHS)
    constant = lambda b: torch.ones(*b["input_ids"].shape, 3)  # noqa: E731
    for labels in ({}, {"labels": torch.full_like(micro_batch["input_ids"], -100)}):
        bare = {**{name: value for name, value in micro_batch.items() if name != "labels"}, **labels}
        assert poison_test(None, bare, logits=constant).unmoved == (0, 1, 2, 3)


def test_a_model_that_answers_in_two_ways_is_named():
    calls = []

    def logits(micro_batch):
        calls.append(1)
        return micro_batch["input_ids"][..., None].float() + 0.125 * len(calls)

    report = poison_test(None, flattened(LENGTHS), logits=logits)
    assert not report
    assert report.noise == 0.125
    assert "in two ways" in str(report)


def test_random_numbers_in_the_forward_pass_are_the_same_in_every_run_and_the_state_is_left_alone():
    before = torch.get_rng_state()
    report = poison_test(
        None,
        flattened(LENGTHS),
        logits=lambda b: b["input_ids"][..., None].float() + torch.rand(b["input_ids"].shape)[..., None],
    )
    assert report, str(report)
    assert torch.equal(torch.get_rng_state(), before)


def test_logits_that_are_not_numbers_are_named_and_infinite_ones_are_compared():
    def logits(micro_batch, filler):
        out = micro_batch["input_ids"][..., None].float().repeat(1, 1, 2)
        out[..., 1] = filler
        return out

    assert poison_test(None, flattened(LENGTHS), logits=lambda b: logits(b, -torch.inf))
    report = poison_test(None, flattened(LENGTHS), logits=lambda b: logits(b, torch.nan))
    assert not report
    assert "not numbers" in str(report)


def test_a_neighbor_that_turns_into_no_number_is_a_leak():
    micro_batch = flattened([3, 3])
    clean = micro_batch["input_ids"]

    def logits(b):
        out = b["input_ids"][..., None].float()
        return (
            out
            if torch.equal(b["input_ids"][0, :3], clean[0, :3])
            else out + torch.tensor([0.0] * 3 + [torch.nan] * 3)[:, None]
        )

    report = poison_test(None, micro_batch, logits=logits)
    assert not report
    assert [(leak.target, leak.difference) for leak in report.leaks] == [(1, float("inf"))]
    assert report.unmoved == ()


def test_a_difference_up_to_atol_is_no_leak():
    def logits(micro_batch):
        ids = micro_batch["input_ids"].float()
        return (ids + 1e-4 * (ids.sum() % 7) / 7)[..., None]

    report = poison_test(None, flattened(LENGTHS, seed=3), logits=logits)
    assert not report and max(leak.difference for leak in report.leaks) < 1e-3
    assert poison_test(None, flattened(LENGTHS, seed=3), logits=logits, atol=1e-3)


def test_one_id_throughout_is_poisoned_by_its_neighbor_in_the_vocabulary():
    for only in (0, 1, 49):
        micro_batch = flattened(LENGTHS)
        micro_batch["input_ids"] = torch.full_like(micro_batch["input_ids"], only)
        seen = set()
        assert poison_test(
            None,
            micro_batch,
            logits=lambda b, seen=seen: (
                seen.update(b["input_ids"].unique().tolist()) or b["input_ids"][..., None].float()
            ),
        )
        assert len(seen) == 2 and all(0 <= each < 50 for each in seen)


@given(lengths=st.lists(st.integers(1, 4), min_size=2, max_size=12), seed=st.integers(0, 1000))
def test_each_run_changes_every_token_of_one_sequence_to_another_id_of_the_micro_batch(lengths, seed):
    micro_batch = flattened(lengths, seed=seed)
    clean, seen = micro_batch["input_ids"], []

    def logits(b):
        assert set(b["input_ids"].unique().tolist()) <= set(clean.unique().tolist()) | {int(clean.max()) - 1}
        assert all(b[name] is micro_batch[name] for name in micro_batch if name != "input_ids")
        seen.append(b["input_ids"])
        return b["input_ids"][..., None].float()

    assert poison_test(None, micro_batch, logits=logits)
    assert torch.equal(seen[0], clean) and torch.equal(seen[1], clean)
    assert len(seen) == 2 + len(lengths)
    for at, ids in enumerate(seen[2:]):
        assert torch.equal((ids != clean)[0], documents_of(micro_batch)[0] == at)


# What it leaves as it was


def test_modes_gradients_parameters_and_random_state_are_left_as_they_were():
    model = model_of("llama")
    model.train()
    model.model.layers[1].eval()  # frozen by its user
    micro_batch = flattened(LENGTHS)
    model(**huggingface(micro_batch, model.config)).loss.backward()
    modes = [module.training for module in model.modules()]
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    parameters = [parameter.detach().clone() for parameter in model.parameters()]
    tensors = {name: value.clone() for name, value in micro_batch.items() if isinstance(value, torch.Tensor)}
    state, enabled = torch.get_rng_state(), torch.is_grad_enabled()
    seen_modes = set()

    def logits(b):
        seen_modes.update(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
        torch.rand(1)
        return model(**huggingface(b, model.config)).logits

    assert poison_test(model, micro_batch, logits=logits, alone=True)
    assert seen_modes == {False}
    assert True in modes and False in modes
    assert [module.training for module in model.modules()] == modes
    assert all(map(torch.equal, (parameter.grad for parameter in model.parameters()), gradients))
    assert all(map(torch.equal, model.parameters(), parameters))
    assert all(torch.equal(micro_batch[name], value) for name, value in tensors.items())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled() == enabled


def test_modes_come_back_also_where_the_model_fails():
    model = TinyDecoder().train()
    with pytest.raises(ZeroDivisionError):
        poison_test(model, flattened(LENGTHS), logits=lambda b: 1 / 0)
    assert all(module.training for module in model.modules())


# Positions, seen by running sequences alone


def test_positions_that_run_on_are_found_by_running_sequences_alone():
    """The mask holds the boundaries, and GPT-2's learned positions go on from document to document."""
    model, micro_batch = model_of("gpt2"), flattened(LENGTHS)
    on = torch.arange(sum(LENGTHS))[None]

    def logits(b):
        arguments = {**huggingface(b, None), "attention_mask": mask_of(b)}
        return model(**{**arguments, "position_ids": on[:, : b["input_ids"].shape[1]]}).logits

    assert poison_test(model, micro_batch, logits=logits)
    report = poison_test(model, micro_batch, logits=logits, alone=True)
    assert not report
    assert report.leaks == () and report.deviating == (1, 2, 3)
    assert "positions that do not restart" in str(report)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_rounding_of_other_dtypes_is_allowed_for(dtype):
    report = poison_test(model_of("llama").to(dtype), flattened(LENGTHS, padding=6), alone=True)
    assert report, str(report)
    assert 0 < max(report.alone.values()) < report.alone_tolerance


@pytest.mark.parametrize(("dtype", "is_mixed"), [(torch.bfloat16, False), (torch.float32, True)])
def test_logits_that_a_coarser_model_raises_to_float32_have_its_rounding(dtype, is_mixed):
    """As Trainers have them in mixed precision."""
    model = model_of("llama").to(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=is_mixed):
        report = poison_test(
            model,
            flattened(LENGTHS),
            logits=lambda b: model(**huggingface(b, model.config)).logits.float(),
            alone=True,
        )
    assert report, str(report)
    assert max(report.alone.values()) > 1e-4


# Errors


def test_one_sequence_has_no_boundary_to_test():
    with pytest.raises(UsageError, match="one sequence") as caught:
        poison_test(None, flattened([5]), logits=lambda b: b["input_ids"][..., None].float())
    assert "micro_batch_size" in caught.value.hint


@pytest.mark.parametrize("shape", [(1, 1, 50), (1, 18, 50), (50,), (19,), (18, 50), (1, 19)])
def test_logits_of_another_shape_are_refused(shape):
    with pytest.raises(UsageError, match="expected") as caught:
        poison_test(None, flattened(LENGTHS), logits=lambda b: torch.zeros(shape))
    assert "logits=" in caught.value.hint
    assert poison_test(None, flattened(LENGTHS), logits=lambda b: b["input_ids"][0, :, None].float()), "without a batch"


def test_a_model_without_logits_and_rows_without_a_mask_are_refused():
    with pytest.raises(UsageError, match="no logits"):
        poison_test(lambda **_: None, flattened(LENGTHS))
    with pytest.raises(UsageError, match="several rows"):
        poison_test(lambda **_: None, rows(LENGTHS))


def test_spans_name_rows_positions_padding_and_training():
    described = [(str(span), span.is_trained) for span in spans_of(padded([2, 3], side="left"))]
    assert described == [
        ("padding, row 0, positions 0 to 0", False),
        ("row 0, positions 1 to 2", True),
        ("row 1, positions 0 to 2", True),
    ]
    flat = [(span.row, span.start, span.stop, span.is_trained) for span in spans_of(flattened([3, 2], padding=2))]
    assert flat == [(0, 0, 3, True), (0, 3, 5, True), (0, 5, 7, False)]
    assert [(span.row, span.start, span.stop) for span in spans_of(rows([2, 1]))] == [
        (0, 0, 2), (0, 2, 3), (1, 0, 2), (1, 2, 3),
    ]  # fmt: skip
