"""Look into a model to see how `dasp.wrap` can take it, and which methods can adapt it then."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from dasp.core.contract import MultiModalModel, check_parts
from dasp.core.errors import ContractError, DaspError
from dasp.core.types import Inputs
from dasp.methods import METHODS, hyperparameters
from dasp.methods.needs import lacking
from dasp.models.gates import Pass, close_gates, open_gates
from dasp.models.wrap import Call, calling, evaluating, logits_of, own_model, wrap

Place = tuple[str, int]  # a module's name, and which of its calls
FEW = 4  # samples that are run


@dataclass(frozen=True)
class Candidate:
    """A module whose output depends on one input alone."""

    modality: str
    name: str
    kind: str
    shape: tuple[int, ...]
    separates: bool  # nothing of the input reaches the prediction past it

    def __str__(self) -> str:
        shape = ", ".join(["B", *map(str, self.shape[1:])])
        rest = "" if self.separates else "   the input also goes past it"
        return f"  {self.modality:<12}{self.name:<32}{self.kind:<24}({shape}){rest}"


@torch.no_grad()
def inspect(model: nn.Module, inputs: Inputs, *, call: Call | None = None) -> dict[str, Any]:
    """Print the modules that can be encoders, a line for `wrap`, and what each method needs.

    Modules are found by running the model on a few samples and changing one input at a time.
    Return what was found: `dasp.wrap(model, **dasp.inspect(model, inputs), inputs=inputs)`.

    Args:
        model: any model of one or several inputs that returns logits (B, C).
        inputs: a batch of at least 2 samples, {modality: (B, ...)}.
        call: how to call the model, as for `wrap`.
    """
    if isinstance(model, MultiModalModel):
        check_parts(model)
        print(f"{type(model).__name__} fulfils the contract.\n")
        _print_methods(model)
        return {}
    model = own_model(model)
    if not isinstance(inputs, Mapping) or not inputs:
        given = type(inputs).__name__
        raise ContractError(f"inputs must be a dict of tensors {{modality: (B, ...)}}, not {given}")
    with evaluating(model):
        candidates, head = find_candidates(model, inputs, call or calling(model, tuple(inputs)))
    print("modules whose output depends on one input alone:", *candidates, sep="\n")
    last = {c.modality: c for c in candidates if c.separates}
    chosen = {c.modality: c.name for c in candidates if c is last.get(c.modality)}
    missing = [name for name in inputs if name not in chosen]
    if missing:
        raise ContractError(
            f"no module of {type(model).__name__} separates {' and '.join(missing)} from the rest: "
            "part the model into modules there, or write encode() and fuse(), docs/own_model.md. "
            "What is not a sensor, such as a mask, is not an input: make it in call=."
        )
    found: dict[str, Any] = {"encoders": chosen, "head": head}
    more = "" if call is None else ", call=call"
    line = f"dasp.wrap(model, encoders={chosen}, head={head!r}, inputs=inputs{more})"
    print(f"\n{line.replace(chr(39), chr(34))}\n")
    with wrap(model, **found, inputs=inputs, call=call) as wrapped:
        _print_methods(wrapped)
    return found


def find_candidates(
    model: nn.Module, inputs: Inputs, call: Call
) -> tuple[list[Candidate], str | None]:
    """Return the outermost candidates in the order in which they run, and the name of the head."""
    few = {name: value[:FEW] for name, value in inputs.items()}
    before, output = _watched(model, partial(call, model, few))
    logits = logits_of(output)
    changed = {name: {**few, name: _other(value)} for name, value in few.items()}
    after = {name: _watched(model, partial(call, model, new))[0] for name, new in changed.items()}
    depends = {
        place: {name for name in few if not _same(value, after[name].get(place))}
        for place, value in before.items()
    }
    modules = {n: module for n, module in model.named_modules() if list(module.parameters())}
    heads = [place[0] for place, value in before.items() if _same(value, logits)]
    found = []
    for place, value in before.items():
        path, index = place
        calls = [p for p in before if p[0] == path]
        each_once = len({m for p in calls for m in depends[p]}) == len(calls)
        around = [outer for outer in modules if outer and path.startswith(f"{outer}.")]
        inside = any(depends.get((o, index)) == depends[place] for o in around if o not in heads)
        if path in heads or path not in modules or len(depends[place]) != 1:
            continue
        if each_once and not inside:
            (name,) = depends[place]
            again = _given(
                modules[path], len(calls), index, value, partial(call, model, changed[name])
            )
            tensor = next(leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))
            kind, separates = type(modules[path]).__name__, _same(logits_of(again), logits)
            found.append(Candidate(name, path, kind, tuple(tensor.shape), separates))
    return found, next((name for name in heads if name in modules), None)


def _given(module: nn.Module, calls: int, index: int, output: Any, run: Callable[[], Any]) -> Any:
    """Run a model with the output of one call of a module given."""
    through = Pass(dict.fromkeys(map(str, range(calls)), module), {str(index): output})
    open_gates([module])
    try:
        return through.run(run)
    finally:
        close_gates([module])


def _watched(model: nn.Module, run: Callable[[], Any]) -> tuple[dict[Place, Any], Any]:
    """Run a model; return the output of each call of each of its modules, and its own."""
    seen: dict[Place, Any] = {}
    counts: dict[str, int] = {}

    def note(name: str, _: nn.Module, __: Any, output: Any) -> None:
        counts[name] = counts.get(name, -1) + 1
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(output)):
            seen[name, counts[name]] = output

    hooks = [
        module.register_forward_hook(partial(note, name))
        for name, module in model.named_modules()
        if name
    ]
    try:
        return seen, run()
    finally:
        for hook in hooks:
            hook.remove()


def _other(value: Tensor) -> Tensor:
    """Return another input of the same kind."""
    if not value.is_floating_point():
        return value.roll(1, dims=0).flip(-1)
    noise = torch.randn(value.shape, generator=torch.Generator().manual_seed(0))
    return value + (1 + value.std()) * noise.to(value)


def _same(first: Any, second: Any) -> bool:
    """Tell whether two outputs are equal but for rounding."""
    one, two = ([v for v in tree_leaves(o) if isinstance(v, Tensor)] for o in (first, second))
    return len(one) == len(two) and all(
        a.shape == b.shape and torch.allclose(a.float(), b.float(), rtol=1e-4, atol=1e-6)
        for a, b in zip(one, two, strict=True)
    )


def _print_methods(model: nn.Module) -> None:
    """Print whether each registered method can adapt a model of the contract, or why it cannot."""
    print(f"{'method':<10}{'works':<8}needs")
    for name, works, needs in method_needs(model):
        print(f"{name:<10}{'yes' if works else 'no':<8}{needs}")


def method_needs(model: nn.Module) -> Iterable[tuple[str, bool, str]]:
    """Yield each registered method, whether it can adapt a model, and what it still needs."""
    for name in METHODS:
        method = METHODS[name]
        needs = ["fit() with clean samples"] * method.needs_source
        length = hyperparameters(method).get("stream_length")
        needs += ["stream_length="] * (length is not None and length.default is None)
        missing = [sentence.partition(": ")[0] for sentence in lacking(method, model)]
        try:
            if not missing:
                list(method(model).trainable())
        except DaspError as error:
            missing = [str(error).rstrip(".")]
        yield name, not missing, "; ".join(missing) or ", ".join(needs)
