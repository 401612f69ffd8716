"""Models and factories that behave badly, each in its own way."""

import os
import signal
import sys
import threading
import time

import torch
from torch import Tensor, nn

__all__ = [
    "exits",
    "gives_infinities",
    "killed",
    "odd_lengths",
    "of_every_process_another",
    "restless",
    "without_weights",
]


class Odd(nn.Module):
    """Refuses 5 tokens always, 7 tokens only with values."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, value: Tensor) -> Tensor:
        if value.shape[1] == 5:
            raise ValueError("five tokens\nare odd")
        if value.shape[1] == 7 and type(value) is Tensor and not value.is_meta:
            raise KeyError("seven")
        return self.line(value)


class Features(nn.Sequential):
    def example_batch(self, samples: int, tokens: int) -> Tensor:
        return torch.randn(samples, tokens, 4)


def odd_lengths() -> nn.Module:
    return nn.Sequential(nn.Identity(), nn.Linear(4, 4), Odd(), nn.Linear(4, 2))


def without_weights() -> nn.Module:
    return Features(nn.ReLU(), nn.Tanh())


def exits() -> nn.Module:
    sys.exit("no model today")


def killed() -> nn.Module:
    sys.stderr.write("the last words\n")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not reached")


def restless() -> nn.Module:
    """Prints, writes to the raw descriptor, reads standard input, leaves a thread behind, warns."""
    sys.stdout.write("hello\n")
    os.write(1, b'{"code":"raw"}\n')
    assert sys.stdin.readline() == ""
    threading.Thread(target=time.sleep, args=(600,)).start()
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))


class Diverges(nn.Module):
    """Divides by zero: infinities of both signs."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, value: Tensor) -> Tensor:
        return self.line(value) / 0.0


def gives_infinities() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), Diverges(), nn.Linear(4, 2))


def of_every_process_another() -> nn.Module:
    """The process that makes the folder named by TEST_FIRST_OF_TWO gets another width than the one behind it."""
    try:
        os.mkdir(os.environ["TEST_FIRST_OF_TWO"])  # one of the two, whoever comes first
        width = 3
    except FileExistsError:
        width = 5
    return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))
