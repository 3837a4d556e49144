"""The ranks of a `torch.distributed` group that share one stream: gloo on CPUs, nccl on GPUs.

Every message is announced: the ranks first exchange three whole numbers, the place in the code
where each one is, and the size of what follows. A rank that failed announces that instead, so
whatever the others were about to do, they learn of it and stop. A call ends when all ranks have
announced its end, and only then is what it learnt kept.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor

from dasp.core.errors import InputError, OptionError, RankError
from dasp.core.types import Inputs
from dasp.methods.group import PeerError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

PLACES = ("failed", "call", "rows", "sum", "clean batch", "end")


class Ranks:
    """One of the ranks, and how it speaks with the others. Every rank must make the same calls."""

    def __init__(self, group: "ProcessGroup | str", device: torch.device) -> None:
        """Join a process group, or all processes by the name "world".

        `device` is the model's; messages are made there, or on the CPU where gloo carries them.
        """
        if not (dist.is_available() and dist.is_initialized()):
            raise OptionError(
                "group= needs torch.distributed: call init_process_group first, in a script that "
                "`torchrun --nproc-per-node 2 script.py` starts."
            )
        if isinstance(group, str) and group != "world":
            raise OptionError(f'group is "world", a process group or None, not {group!r}.')
        self._group = dist.group.WORLD if isinstance(group, str) else group
        self.rank, self.size = dist.get_rank(self._group), dist.get_world_size(self._group)
        if self.rank < 0:
            raise OptionError("this process is not in the group that was given: leave group out.")
        by_gloo = dist.get_backend(self._group) == "gloo"
        self._device = torch.device("cpu") if by_gloo else device
        self._parts = [0] * self.size  # samples of each rank in this call
        self._open = False  # whether the others wait for the end of a call

    @contextmanager
    def together(self) -> Iterator[None]:
        """Within this block an error of this rank is told to the others, which get `PeerError`."""
        self._open = True
        try:
            yield
            self.settle()
        except Exception as error:
            if self._open:
                self._open = False
                with suppress(RankError):
                    self._announce("failed")
                    self._reasons(error)
            raise
        finally:
            self._open = False

    def meet(self, facts: Callable[[], Mapping[str, object]], rows: int) -> None:
        """Begin a call on so many samples of this rank; refuse it if the ranks' facts differ."""
        own = {name: str(fact) for name, fact in facts().items()}
        found = self._exchange("call", rows, crc32(repr(own).encode()))
        self._parts = [count for count, _ in found]
        if len({code for _, code in found}) > 1:
            self._open = False
            raise RankError(self._difference(own))

    def settle(self) -> None:
        """Wait until all ranks have come so far: from here on none fails."""
        if self._open:
            self._exchange("end")
            self._open = False

    def gather(self, rows: Tensor) -> Tensor:
        """Return all ranks' rows (b, …) → (B, …), differentiable where `average` follows."""
        found = self._exchange("rows", len(rows), rows.shape[1:].numel())
        self._same("the width of their rows", [wide for _, wide in found])
        counts = [count for count, _ in found]
        kind = torch.uint8 if rows.dtype == torch.bool else rows.dtype
        sent = torch.zeros(max(counts), *rows.shape[1:], dtype=kind, device=self._device)
        sent[: len(rows)] = rows.detach()
        parts = [torch.empty_like(sent) for _ in counts]
        self._send(dist.all_gather, parts, sent)
        whole = [part[:count].to(rows) for part, count in zip(parts, counts, strict=True)]
        whole[self.rank] = own = rows.view_as(rows)
        if own.requires_grad:
            own.register_hook(lambda gradient: gradient * self.size)  # type: ignore[no-untyped-call]
        return torch.cat(whole)

    def own(self, rows: Tensor) -> Tensor:
        """Return this rank's part of rows (B, …) of all samples of the call → (b, …)."""
        start = sum(self._parts[: self.rank])
        return rows[start : start + self._parts[self.rank]]

    def gathers(self, width: int) -> bool:
        """Whether to gather rows of so many numbers, rather than to add up their moments.

        Gathering brings B·D numbers of 4 bytes to each rank. A sum of D²/2 numbers of 8 bytes
        goes round twice, once to be added up and once to be told: 8·D² bytes, more if B ≤ 2·D.
        """
        return sum(self._parts) <= 2 * width

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Make each tensor the sum of all ranks'; one message for all of them."""
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors]).to(self._device)
        self._same("what they learn", [size for size, _ in self._exchange("sum", len(flat))])
        self._send(dist.all_reduce, flat)
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Make each gradient the mean of all ranks'; one message for all of them."""
        if gradients:
            self.add_up(gradients)
        for gradient in gradients:
            gradient.div_(self.size)

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Make each tensor that of the first rank."""
        for tensor in tensors:
            told = tensor.detach().to(self._device, copy=True)
            self._send(dist.broadcast, told, dist.get_global_rank(self._group, 0))  # type: ignore[arg-type]
            tensor.data.copy_(told)

    def join(self, batches: Iterable[Inputs]) -> Iterator[Inputs]:
        """Give the ranks' first batches joined, then their second, and so on."""
        left = iter(batches)
        while True:
            batch = next(left, None)
            more = [there for there, _ in self._exchange("clean batch", batch is not None)]
            if not any(more):
                return
            if batch is None or not all(more):
                raise InputError("fit() takes as many batches on each rank: split them evenly.")
            yield {name: self.gather(batch[name]) for name in sorted(batch)}

    def _exchange(self, place: str, *numbers: int) -> list[tuple[int, int]]:
        """Tell all ranks where this one is, with two numbers; return theirs, by rank."""
        found = self._announce(place, *numbers)
        if any(code == PLACES.index("failed") for code, *_ in found):
            self._open = False
            raise PeerError(f"another rank failed: {self._reasons(None)}")
        self._same("where they are", [PLACES[code] for code, *_ in found])
        return [(first, second) for _, first, second in found]

    def _announce(self, place: str, first: int = 0, second: int = 0) -> list[list[int]]:
        own = torch.tensor([PLACES.index(place), first, second], device=self._device)
        parts = [torch.empty_like(own) for _ in range(self.size)]
        self._send(dist.all_gather, parts, own)
        found: list[list[int]] = torch.stack(parts).tolist()
        return found

    def _same(self, what: str, found: Sequence[object]) -> None:
        """Refuse to go on, on every rank, if the ranks found different things."""
        if len(set(found)) > 1:
            self._open = False
            shown = ", ".join(f"{thing} on rank {rank}" for rank, thing in enumerate(found))
            raise RankError(f"the ranks differ in {what}: {shown}. All must make the same calls.")

    def _difference(self, own: Mapping[str, str]) -> str:
        """Say which rank differs from the first in what."""
        first, *others = self._objects(own)
        for rank, other in enumerate(others, start=1):
            for name in first:
                if other.get(name) != first[name]:
                    shown = f"{first[name]:.80} on rank 0, {other.get(name)!s:.80} on rank {rank}"
                    return f"the ranks differ in {name}: {shown}. Make it the same on every rank."
        return "the ranks differ in what they were given."

    def _reasons(self, error: Exception | None) -> str:
        """Exchange why ranks failed: "rank 1, ValueError: …"."""
        own = None if error is None else f"{type(error).__name__}: {error}"
        found = enumerate(self._objects(own))
        return "; ".join(f"rank {rank}, {reason}" for rank, reason in found if reason is not None)

    def _objects(self, own: object) -> list[Any]:
        found: list[Any] = [None] * self.size
        self._send(dist.all_gather_object, found, own)
        return found

    def _send(self, collective: Callable[..., Any], *arguments: object) -> None:
        try:
            collective(*arguments, group=self._group)
        except RuntimeError as error:
            self._open = False
            raise RankError(
                f"another rank cannot be reached ({error}): end all ranks and start them again."
            ) from error
