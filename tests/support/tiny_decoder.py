"""A decoder of two layers in float64, small enough to compare losses and gradients to the last digits."""

import torch
from torch import nn


def rotate(states, position_ids):
    """Rotary positions: pairs (i, i + d/2) of a head turned by position x 100^(-2i/d).  # states [B, H, T, d]"""
    half = states.shape[-1] // 2
    speed = 100.0 ** (-torch.arange(half, dtype=states.dtype) / half)
    angle = position_ids[:, None, :, None].to(states.dtype) * speed
    first, second = states[..., :half], states[..., half:]
    return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], dim=-1)


class Layer(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, states, position_ids, mask):
        B, T, width = states.shape
        heads = self.qkv(self.before_attention(states)).view(B, T, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = rotate(heads[0], position_ids), rotate(heads[1], position_ids), heads[2]
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        mixed = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ value
        states = states + self.out(mixed.transpose(1, 2).reshape(B, T, width))
        return states + self.mlp(self.before_mlp(states))


class TinyDecoder(nn.Module):
    """Logits of `input_ids` [B, T] under an explicit mask, bool, broadcastable to [B, 1, T, T], query by key."""

    def __init__(self, vocab_size=50, width=16, num_heads=2, num_layers=2, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(vocab_size, width)
        self.layers = nn.ModuleList(Layer(width, num_heads) for _ in range(num_layers))
        self.head = nn.Linear(width, vocab_size)
        self.double()

    def forward(self, input_ids, position_ids, mask):
        states = self.embed(input_ids)
        for layer in self.layers:
            states = layer(states, position_ids, mask)
        return self.head(states)


def summed_loss(logits, labels):
    """Cross entropy of unshifted labels, summed over trained targets."""
    return nn.functional.cross_entropy(
        logits[..., :-1, :].flatten(0, -2), labels[..., 1:].flatten(), ignore_index=-100, reduction="sum"
    )


def causal(length):
    return torch.ones(length, length, dtype=torch.bool).tril()
