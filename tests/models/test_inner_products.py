"""The quick product of many vectors is as exact as the plain one; it has a gradient where asked."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ffmem.models import unembedding
from ffmem.models.unembedding import VocabularyBand, inner_products

SHAPES = [((1, 24), 40_001), ((200, 37), 1000), ((3, 40, 64), 515)]


@torch.no_grad()
@pytest.mark.parametrize(("shape", "words"), SHAPES)
def test_many_vectors_are_multiplied_as_exactly_as_few(shape: tuple[int, ...], words: int) -> None:
    torch.manual_seed(0)
    h, rows = torch.randn(shape), torch.randn(words, shape[-1])
    exact = h.double() @ rows.double().T
    bound = 1e-6 * (h.norm(dim=-1, keepdim=True) * rows.norm(dim=-1)).double()
    assert ((inner_products(h, rows).double() - exact).abs() <= bound).all()
    apart = h.transpose(0, -2).contiguous().transpose(0, -2)  # the same, laid out in another order
    assert ((inner_products(apart, rows).double() - exact).abs() <= bound).all()
    halves = VocabularyBand(rows.bfloat16()).scores(h).double()
    exact = h.double() @ rows.bfloat16().double().T
    assert ((halves - exact).abs() <= bound).all()


@torch.no_grad()
def test_scores_apart_by_less_than_sixteen_bits_hold_keep_their_order() -> None:
    torch.manual_seed(0)
    h, rows = torch.randn(64, 48), torch.randn(700, 48)
    better = h[:, None].expand(-1, 5, -1) * (1 + 1e-4 * torch.arange(5.0)[:, None])
    rows[100:420] = better.reshape(320, 48)  # of every vector five tokens, nearly equal
    scores = inner_products(h, rows)
    own = scores.gather(1, 100 + 5 * torch.arange(64)[:, None] + torch.arange(5))
    assert (own.diff(dim=1) > 0).all()
    assert (scores.argmax(dim=1) == 104 + 5 * torch.arange(64)).all()


def test_a_gradient_goes_through() -> None:
    h, rows = torch.randn(400, 8, requires_grad=True), torch.arange(7200.0).view(900, 8)
    inner_products(h, rows)[:, 7].sum().backward()
    assert h.grad is not None
    assert torch.equal(h.grad, rows[7].expand_as(h))


@torch.no_grad()
def test_a_machine_without_it_takes_the_plain_product(monkeypatch: pytest.MonkeyPatch) -> None:
    def product(fast: bool) -> Tensor:
        monkeypatch.setattr(unembedding, "has_fast_product", lambda: fast)
        return inner_products(h, rows)

    h, rows = torch.randn(400, 8), torch.randn(900, 8)
    assert torch.equal(product(fast=False), h @ rows.T)
    if unembedding.has_fast_product():
        torch.testing.assert_close(product(fast=True), product(fast=False))
