"""Which methods may share a stream among ranks: those that then learn what one process learns."""

from dataclasses import asdict

from dasp.core.errors import ContractError
from dasp.methods.base import METHODS, Method
from dasp.methods.group import Group
from dasp.methods.options import Options
from dasp.methods.saved import about
from dasp.methods.state import Memory

# Said here, and of others by `Method.sharded`, because stored results know a method by its file.
LEARN_FROM_LOGITS = ("source", "tent", "eata", "read")
WHY_NOT = {
    "sar": "it climbs along the gradient before the ranks' gradients are added up",
    "abpem": "its loss holds attention maps, which stay on the rank that made them",
    "pta": "it compares attention maps of all samples, which stay on the rank that made them",
    "sumi": "it chooses samples by the range of all samples' tokens, which stay on their rank",
    "tsa": "it draws numbers for its samples in their order, which begins anew on each rank",
    "brimpr": "it contrasts each sample with all others, whose embeddings stay on their rank",
}


def enter(group: Group, memory: Memory, options: Options) -> None:
    """Let a method share its stream: refuse what would not be exact or differs between ranks.

    All ranks then have the trained weights and buffers of the first.
    """
    method = memory.method
    said = about(method)
    if group.size > 1:
        check_sharded(method)
    group.meet(
        lambda: {
            "method": said["method"],
            **said["hyper"],
            "seed": method.seed,
            **asdict(options),
            "the model's weights": memory.fingerprint(memory.capture()),
        },
        rows=0,
    )
    group.share([*memory.weights.values(), *memory.buffers().values()])


def check_sharded(method: Method) -> None:
    """Refuse a method that would not learn from many ranks what it learns from one."""
    name = next((name for name in METHODS if METHODS[name] is type(method)), "")
    if not (method.sharded or name in LEARN_FROM_LOGITS):
        why = WHY_NOT.get(name, "it does not say `sharded = True` (see Method.sharded)")
        raise ContractError(
            f"{type(method).__name__} cannot share a stream among ranks: {why}. "
            "Leave group out and give each rank a stream of its own."
        )
