"""Timing as `warpsmith bench` has it: launches between two events each, peers of a case in turns, tensors that L2 does not hold."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import peers
from lazy import torch
from peers import Make, Peer

ROUNDS = 10
MAX_RUNS = 200
MAX_SETS = 16
WARM_UP = 3
# Seconds that all peers of a case together keep the device busy before the first round.
SETTLE = 0.05
# How many cycles a second of a GPU has at most, and how long it is made to wait at most.
CLOCK, LONGEST_WAIT = 2e9, 0.05

T = TypeVar("T")
Sets = list[tuple[Any, ...]]
# What is called with a peer that fails, and why.
Failed = Callable[[Peer, Exception], None]


class DeviceLost(Exception):
    """A kernel failed in such a way that nothing runs on the device any more."""


@dataclass
class Contender:
    """A peer, ready to be launched over and over."""

    peer: Peer
    sets: Sets
    at: int = 0
    runs: int = 0
    # Seconds that queueing a launch takes.
    queueing: float = 0.0
    times: list[float] = field(default_factory=list)

    def launch(self) -> None:
        """Queues a launch, on the next set of tensors."""
        self.at = (self.at + 1) % len(self.sets)
        self.peer.call(*self.sets[self.at])

    def warm_up(self, busy: float, budget: float) -> None:
        """Launches a few times, and then for about so many seconds; finds how many launches fit the budget."""
        # Other lines fill L2, as programs leave it.
        torch.empty(2 * l2_bytes(), dtype=torch.uint8, device=peers.DEVICE).zero_()
        for _ in range(WARM_UP):
            self.launch()
        torch.cuda.synchronize()
        start = time.perf_counter()
        self.launch()
        self.queueing = time.perf_counter() - start
        torch.cuda.synchronize()
        once = max(time.perf_counter() - start, 1e-5)
        for _ in range(int(busy / once)):
            self.launch()
        torch.cuda.synchronize()
        self.runs = max(ROUNDS, min(MAX_RUNS, int(budget / once)))

    def turn(self, number: int) -> None:
        """Times a round's share of the launches."""
        launches = self.runs * (number + 1) // ROUNDS - self.runs * number // ROUNDS
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(launches)]
        # Until all are queued, the device waits: what Python takes between launches is in none of the times.
        torch.cuda._sleep(int(min(launches * self.queueing, LONGEST_WAIT) * CLOCK))
        for start, end in events:
            start.record()
            self.launch()
            end.record()
        torch.cuda.synchronize()
        self.times += [start.elapsed_time(end) for start, end in events]

    def median_and_least(self) -> tuple[float, float]:
        """Milliseconds."""
        times = sorted(self.times)
        return times[len(times) // 2], times[0]


def l2_bytes() -> int:
    """The size of the device's second-level cache."""
    return torch.cuda.get_device_properties(0).L2_cache_size


def bytes_of(x: Any) -> int:
    """The size of all tensors in something."""
    if isinstance(x, (tuple, list)):
        return sum(map(bytes_of, x))
    return x.numel() * x.element_size() if torch.is_tensor(x) else 0


def make_sets(make: Make) -> Sets:
    """As many sets of tensors as exceed twice the L2 cache together."""
    first = make()
    count = math.ceil(2 * l2_bytes() / max(bytes_of(first), 1))
    return [first, *(make() for _ in range(min(count, MAX_SETS) - 1))]


def attempt(peer: Peer, what: Callable[[], None], failed: Failed) -> bool:
    """Whether something succeeds; if not, says so."""
    try:
        what()
        return True
    except Exception as error:  # noqa: BLE001
        # Whatever a peer raises, the others go on.
        failed(peer, error)
    try:
        torch.cuda.synchronize()
    except Exception as error:
        raise DeviceLost(str(error)) from error
    return False


def time_in_turns(wanted: list[Peer], budget: float, failed: Failed) -> list[tuple[Peer, float, float]]:
    """Median and least milliseconds of each peer that does not fail."""
    sets: dict[Make, Sets] = {}
    contenders: list[Contender] = []

    def ready(peer: Peer) -> None:
        if peer.make not in sets:
            sets[peer.make] = make_sets(peer.make)
        contender = Contender(peer, sets[peer.make])
        # What is compiled or tuned at the first launch is not what the others wait for.
        contender.launch()
        torch.cuda.synchronize()
        contenders.append(contender)

    for peer in wanted:
        attempt(peer, lambda peer=peer: ready(peer), failed)
    busy = SETTLE / len(contenders) if len(contenders) > 1 else 0.0
    contenders = [one for one in contenders if attempt(one.peer, lambda one=one: one.warm_up(busy, budget), failed)]
    for number in range(ROUNDS):
        for contender in order(list(contenders), number):
            if not attempt(contender.peer, lambda one=contender, number=number: one.turn(number), failed):
                contenders.remove(contender)
    return [(one.peer, *one.median_and_least()) for one in contenders]


def order(contenders: list[T], number: int) -> list[T]:
    """The contenders in a round: forth and back, and from another beginning."""
    turned = contenders if number % 2 == 0 else contenders[::-1]
    first = number // 2 % max(len(turned), 1)
    return turned[first:] + turned[:first]
