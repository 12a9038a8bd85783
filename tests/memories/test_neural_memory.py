import torch

from ffmem.memories.neural_memory import feed_forward, neural_memory


def test_the_worked_example_is_the_same_in_both_memories() -> None:
    keys, values = torch.eye(2), torch.tensor([[2.0, 3.0], [4.0, 1.0]])
    x = torch.tensor([0.5, 0.5])
    assert feed_forward(x, keys, values).tolist() == [3.0, 2.0]
    assert neural_memory(x, keys, values).tolist() == [3.0, 2.0]


def test_only_the_neural_memory_is_normalised() -> None:
    keys, values = torch.eye(2), torch.tensor([[2.0, 3.0], [4.0, 1.0]])
    x = torch.tensor([2.0, 2.0])
    assert feed_forward(x, keys, values).tolist() == [12.0, 8.0]
    assert neural_memory(x, keys, values).tolist() == [3.0, 2.0]
