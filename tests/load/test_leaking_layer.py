"""Where documents leak into each other, the poison test names the layer in which it begins."""

import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from search_effort import percent_of_examples  # noqa: E402
from small_micro_batches import flattened, padded, rows  # noqa: E402
from tiny_decoder import Layer, TinyDecoder  # noqa: E402

from packer.load import poison_test  # noqa: E402
from packer.load.attention import block_diagonal_mask, documents_of  # noqa: E402

LENGTHS = [5, 9, 2, 4]
WIDTH = 16


class Unmasked(Layer):
    """Attention to all that comes before, whatever the mask."""

    def forward(self, states, position_ids, mask):
        return super().forward(states, position_ids, torch.ones_like(mask).tril())


class Mixed(torch.nn.Module):
    """A layer around another way to mix positions, which writes over its input."""

    def __init__(self, mixer):
        super().__init__()
        self.norm, self.mixer, self.out = torch.nn.LayerNorm(WIDTH), mixer, torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, states, position_ids, mask):
        return states.add_(self.out(self.mixer(self.norm(states))))


class Convolution(torch.nn.Module):
    """Three positions back, over boundaries; what it calls works on [B, width, T]."""

    def __init__(self):
        super().__init__()
        self.conv1d = torch.nn.Conv1d(WIDTH, WIDTH, 4, padding=3)

    def forward(self, states):
        return self.conv1d(states.transpose(1, 2))[..., : states.shape[1]].transpose(1, 2)


class LinearAttention(torch.nn.Module):
    """A state that no boundary resets."""

    def forward(self, states):
        return (states.sigmoid() * states).cumsum(1)


class Experts(torch.nn.Module):
    """The first six tokens of a micro-batch that ask for it get the expert; it takes tokens [B·T, width]."""

    def __init__(self):
        super().__init__()
        self.expert = Served()

    def forward(self, states):
        return self.expert(states.flatten(0, 1)).view_as(states)


class Served(torch.nn.Module):
    def forward(self, tokens):
        asks = tokens.sum(-1).sin() > 0
        return tokens * (asks & (asks.cumsum(0) <= 6))[:, None]


def decoder(**layers):
    """A decoder of four layers, some of them replaced: `layer_2=Unmasked(...)`."""
    model = TinyDecoder(width=WIDTH, num_layers=4)
    for name, layer in layers.items():
        model.layers[int(name.removeprefix("layer_"))] = layer.double()
    return model


def as_trained(model):
    return lambda b: model(b["input_ids"], b["position_ids"], block_diagonal_mask(documents_of(b)).unsqueeze(1))


def unmasked():
    return Unmasked(WIDTH, 2)


@percent_of_examples(40)
@given(leaking=st.sets(st.integers(0, 3), min_size=1), form=st.sampled_from([flattened, rows]), seed=st.integers(0, 99))
def test_of_all_layers_that_leak_the_first_one_is_named(leaking, form, seed):
    model = decoder(**{f"layer_{number}": unmasked() for number in leaking})
    report = poison_test(
        model, form(LENGTHS, seed=seed) if form is flattened else form(LENGTHS), logits=as_trained(model)
    )
    assert report.leaks and report.layer == f"layers.{min(leaking)}"
    assert f"first in layers.{min(leaking)}: " in str(report)
    assert not any({**module._forward_hooks, **module._forward_pre_hooks} for module in model.modules())


@pytest.mark.parametrize(
    ("mixer", "name"),
    [(Convolution, "mixer"), (LinearAttention, "mixer"), (Experts, "mixer.expert")],
)
@pytest.mark.parametrize("number", [0, 1])
def test_a_hybrid_names_the_layer_of_the_other_kind_and_no_attention_after_it(mixer, name, number):
    """Attention that is right carries on, within each document, what reached its first positions."""
    torch.manual_seed(1)
    model = decoder(**{f"layer_{number}": Mixed(mixer())})
    report = poison_test(model, flattened(LENGTHS), logits=as_trained(model))
    assert report.leaks and report.layer == f"layers.{number}.{name}"


class Averaging(torch.nn.Module):
    """Adds to each logit the mean over the micro-batch, in no module of its own."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, micro_batch):
        logits = as_trained(self.model)(micro_batch)
        return logits + logits.mean((0, 1), keepdim=True)


@pytest.mark.parametrize("form", [flattened, rows, padded])
def test_a_layer_is_named_among_the_modules_that_were_given(form):
    model = decoder()
    whole = Averaging(model)
    for given_model, logits, layer in (
        (None, whole, "Averaging"),
        (model, whole, None),
        (None, whole.forward, None),
    ):
        report = poison_test(given_model, form(LENGTHS), logits=logits)
        assert report.leaks and report.layer == layer
        assert "boundaries leak: " in str(report) or f"first in {layer}: " in str(report)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_by_the_dtype_hides_no_leak_and_names_its_layer(dtype):
    model = decoder(layer_2=unmasked()).to(dtype)
    report = poison_test(model, flattened(LENGTHS), logits=as_trained(model), atol=None)
    assert report.atol == report.alone_tolerance > 0
    assert report.leaks and report.layer == "layers.2"


def test_a_compiled_model_is_searched_as_it_is_written():
    model = decoder(layer_1=unmasked())
    report = poison_test(model, flattened(LENGTHS), logits=as_trained(torch.compile(model, backend="eager")))
    assert report.layer == "layers.1"
