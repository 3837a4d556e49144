"""Share one stream among processes: each rank gets its part of every batch.

`Method.forward` runs the model on this rank's samples and returns the logits of all ranks' samples,
in rank order. Losses, filters, averages and guards therefore see the joined batch, and every rank
takes the same decisions from the same bytes. The gradient flows, on each rank, through that rank's
own samples only. That of the joined batch is the mean of the ranks' gradients, which `gather` has
multiplied by their number: a term without samples (a penalty on the weights) then counts once.

The ranks announce every message by three integers: the point in the protocol that each has reached
and the size of what follows. A rank that failed announces that instead, so the others stop rather
than wait. What a call learned is kept when all ranks have announced its end.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor

from dasp.core.errors import InputError, OptionError, RankError
from dasp.core.types import Inputs, Tokens

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from dasp.methods.base import Method

POINTS = ("failed", "call", "rows", "sum", "clean batch", "end")


class PeerError(RankError):
    """Another rank failed; that rank raises its own error."""


class Ranks:
    """The processes that share a stream, seen from one of them; a single one exchanges nothing.

    Several are a `torch.distributed` group: gloo on CPUs, nccl on GPUs. All ranks of a group must
    make the same calls in the same order.
    """

    rank, size = 0, 1

    def __init__(self, group: "ProcessGroup | str | None", device: torch.device) -> None:
        """Join a process group, or all processes by the name "world"; None for this one alone.

        `device` is the model's. Messages are made there, or on the CPU if gloo carries them.
        """
        self._open = False  # whether the others wait for the end of a call
        if group is None:
            return
        if not (dist.is_available() and dist.is_initialized()):
            raise OptionError(
                "group= needs torch.distributed: call init_process_group first, in a script "
                "started by `torchrun --nproc-per-node 2 script.py`."
            )
        if isinstance(group, str) and group != "world":
            raise OptionError(f'group must be "world", a process group or None, not {group!r}.')
        self._group = dist.group.WORLD if isinstance(group, str) else group
        self.rank, self.size = dist.get_rank(self._group), dist.get_world_size(self._group)
        if self.rank < 0:
            raise OptionError("this process is not a member of the given group: omit group=.")
        by_gloo = dist.get_backend(self._group) == "gloo"
        self._device = torch.device("cpu") if by_gloo else device
        self._parts = [0] * self.size  # samples of each rank in this call

    @contextmanager
    def together(self) -> Iterator[None]:
        """Report an error raised in this block to the other ranks, which get `PeerError`."""
        self._open = self.size > 1
        try:
            yield
            self.settle()
        except Exception as error:
            if self._open:
                with suppress(RankError):
                    self._exchange("failed", why=f"{type(error).__name__}: {error}")
            raise
        finally:
            self._open = False

    def meet(self, facts: Callable[[], Mapping[str, object]], rows: int) -> None:
        """Begin a call on `rows` samples of this rank; refuse it if the ranks' facts differ."""
        if self.size > 1:
            own = {name: str(fact) for name, fact in facts().items()}
            found = self._exchange("call", rows, crc32(repr(sorted(own.items())).encode()))
            self._parts = [count for count, _ in found]
            if len({code for _, code in found}) > 1:
                everyone = self._objects(own)
                for name in dict.fromkeys(name for other in everyone for name in other):
                    self._same(name, [other.get(name) for other in everyone])

    def settle(self) -> None:
        """Wait until all ranks have got this far; none fails from here on."""
        if self._open:
            self._exchange("end")
            self._open = False

    def gather(self, rows: Tensor) -> Tensor:
        """Return all ranks' rows (b, …) → (B, …), differentiable where `average` follows."""
        if self.size == 1:
            return rows
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
        if self.size == 1:
            return rows
        start = sum(self._parts[: self.rank])
        return rows[start : start + self._parts[self.rank]]

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Replace each gradient by the mean over all ranks, in one message."""
        if self.size == 1 or not gradients:
            return
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients]).to(self._device)
        self._same("what they learn", [size for size, _ in self._exchange("sum", len(flat))])
        self._send(dist.all_reduce, flat)
        parts = torch.split(flat.div_(self.size), [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by that of the first rank."""
        for tensor in tensors if self.size > 1 else ():
            told = tensor.detach().to(self._device, copy=True)
            self._send(dist.broadcast, told, dist.get_global_rank(self._group, 0))  # type: ignore[arg-type]
            tensor.data.copy_(told)

    def join(self, batches: Iterable[Inputs]) -> Iterator[Inputs]:
        """Yield the ranks' first batches joined, then their second, and so on."""
        if self.size == 1:
            yield from batches
            return
        left = iter(batches)
        while True:
            batch = next(left, None)
            more = [there for there, _ in self._exchange("clean batch", batch is not None)]
            if not any(more):
                return
            if batch is None or not all(more):
                raise InputError(
                    "fit() needs the same number of batches on each rank: split them evenly."
                )
            yield {name: self.gather(batch[name]) for name in sorted(batch)}

    def _exchange(
        self, point: str, first: int = 0, second: int = 0, why: str | None = None
    ) -> list[tuple[int, int]]:
        """Announce where this rank is, with two numbers, or why it failed; return all ranks'."""
        own = torch.tensor([POINTS.index(point), first, second], device=self._device)
        parts = [torch.empty_like(own) for _ in range(self.size)]
        self._send(dist.all_gather, parts, own)
        found = torch.stack(parts).tolist()
        if any(code == POINTS.index("failed") for code, *_ in found):
            self._open = False
            reasons = [f"rank {n}, {said}" for n, said in enumerate(self._objects(why)) if said]
            raise PeerError(f"another rank failed: {'; '.join(reasons)}")
        self._same("where they are", [POINTS[code] for code, *_ in found])
        return [(first, second) for _, first, second in found]

    def _same(self, what: str, found: Sequence[object]) -> None:
        """Raise on every rank if the ranks found different things."""
        if len(set(found)) > 1:
            self._open = False
            shown = ", ".join(f"{thing!s:.80} on rank {rank}" for rank, thing in enumerate(found))
            raise RankError(f"the ranks differ in {what}: {shown}. Make it the same on every rank.")

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
                f"another rank cannot be reached ({error}): stop all ranks and restart them."
            ) from error


ALONE = Ranks(None, torch.device("cpu"))


@contextmanager
def apart(method: "Method") -> Iterator[None]:
    """Let a method see only this rank's samples within this block."""
    ranks, method.group = method.group, ALONE
    try:
        yield
    finally:
        method.group = ranks


def with_stand_in(batch: Tokens) -> dict[str, Tensor]:
    """Give a rank without samples one of zeros (0, …) → (1, …): few models run on no samples.

    The result is cut off again, so that its gradients exist and are zero.
    """
    return {n: v if len(v) else v.new_zeros(1, *v.shape[1:]) for n, v in batch.items()}
