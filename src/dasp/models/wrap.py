"""Adapt any `nn.Module` as it is, by the names of its submodules.

`encode` runs the model's own forward and takes the outputs of the named encoders; `fuse` runs it
again with these outputs given, so that the encoders are not computed twice.
"""

import difflib
import inspect
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from dasp.core.contract import TASK, check_fused, check_logits, check_parts, token_width
from dasp.core.errors import ContractError, InputError, OptionError, StateError, unknown_name
from dasp.core.types import Fused, Inputs, Tokens
from dasp.models.gates import Pass, close_gates, is_float, open_gates

Call = Callable[[nn.Module, Inputs], Any]
Absent = Literal["mean", "zeros", "noise"] | Tensor
CLASSIFYING = ("multiclass", "single_label_classification")  # as other libraries call it
FEW = 32  # samples whose mean or spread says little
CHANNELS_FIRST = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.GroupNorm)


@dataclass(frozen=True, eq=False)
class _Feature:
    """Where the feature of a modality is in the output of its encoder, and what its axes are."""

    leaves: tuple[Any, ...]  # of the output for one sample, which may be several rows (frames)
    axes: tuple[int | None, ...]  # of the samples, in each leaf
    spec: TreeSpec
    place: int  # of the feature among the leaves
    channels: int  # axis, when the samples' axis is the first

    def __deepcopy__(self, _: Any) -> Self:
        return self  # nothing in it ever changes

    def tokens(self, output: Any) -> Tensor:
        """Return the feature in an output as tokens (B, N, D)."""
        value = self._channels_last(tree_leaves(output)[self.place])
        rows = self._channels_last(self.leaves[self.place]).shape[0]  # per sample
        return value.reshape(-1, rows, *value.shape[1:]).flatten(1, -2)

    def output(self, tokens: Tensor, name: str) -> Any:
        """Return an output with these tokens (B, N, D) in it; nothing depends on the rest of it."""
        batch, count, width = tokens.shape
        rows, *sizes = self._channels_last(self.leaves[self.place]).shape[:-1]
        if rows == 1 and len(sizes) == 1:
            sizes = [count]  # a sequence may have any length
        if (known := torch.Size([rows, *sizes]).numel()) != count:
            raise InputError(
                f"'{name}' has {count} tokens, and the inputs given to wrap() have {known}: "
                "call wrap() with inputs of this size."
            )
        leaves = [
            leaf
            if axis is None
            else leaf.to(tokens.device).movedim(axis, 0).expand(batch, *[-1] * leaf.ndim)
            for leaf, axis in zip(self.leaves, self.axes, strict=True)
        ]
        value = tokens.reshape(batch, rows, *sizes, width)
        leaves[self.place] = value.movedim(-1, self.channels + 1)
        for place, axis in enumerate(self.axes):
            if axis is not None:
                leaves[place] = leaves[place].flatten(0, 1).movedim(0, axis)
        return tree_unflatten(leaves, self.spec)

    def _channels_last(self, value: Tensor) -> Tensor:
        return value.movedim(self.axes[self.place] or 0, 0).movedim(self.channels, -1)


class Wrapped(nn.Module):
    """A model of the contract made by `wrap`; `close()`, or the end of a `with`, undoes it.

    `model` is the user's own. Its weights and its `state_dict` are as they were.
    """

    def __init__(
        self,
        model: nn.Module,
        encoders: Mapping[str, str],
        head: str | None,
        call: Call,
        task: str = TASK,
    ) -> None:
        super().__init__()
        self.model, self.modalities, self.closed = model, tuple(encoders), False
        self.told_as = f"the wrapped {type(model).__name__}"
        # Part of the digest of a model, as the sizes of other models are:
        self.config: dict[str, Any] = {"encoders": dict(encoders), "head": head}
        self.embed_dim: int | Mapping[str, int] = {}
        self.num_classes, self.task = 0, task
        self._call = call
        self._features: dict[str, _Feature] = {}
        open_gates({*self._encoders().values(), *self._heads()})

    def extra_repr(self) -> str:
        """Return what PyTorch prints of it beside its modules."""
        said = {**self.config, "num_classes": self.num_classes}
        return ", ".join(f"{name}={value!r}" for name, value in said.items())

    def _encoders(self) -> dict[str, nn.Module]:
        return {n: self.model.get_submodule(p) for n, p in self.config["encoders"].items()}

    def _heads(self) -> list[nn.Module]:
        head = self.config["head"]
        return [] if head is None else [self.model.get_submodule(head)]

    def run(
        self, inputs: Inputs, given: Mapping[str, Any], wanted: Collection[str] | None = None
    ) -> tuple[Pass, Any]:
        """Run the model with some encoders' outputs given; return the pass and the output."""
        if self.closed:
            raise StateError("this wrapped model was closed: call dasp.wrap() again.")
        through = Pass(self._encoders(), given, wanted, next(iter(self._heads()), None))
        return through, through.run(partial(self._call, self.model, inputs))

    def encode(self, inputs: Inputs) -> dict[str, Tensor]:
        """Run the encoders of any subset of the modalities: {name: raw} → {name: (B, N, D)}."""
        count = len(next(iter(inputs.values())))
        others = self._outputs({}, count, [n for n in self.modalities if n not in inputs])
        found = self.run({**self._raw(count), **inputs}, others, inputs)[0].computed
        return {name: self._features[name].tokens(found[name]) for name in inputs}

    def fuse(self, tokens: Tokens) -> Fused:
        """Run the rest of the model on any non-empty subset, with stand-ins for the others."""
        count = len(next(iter(tokens.values())))
        given = self._outputs(tokens, count, self.modalities)
        through, output = self.run(self._raw(count), given)
        logits, embedding = logits_of(output), through.embedding
        return Fused(logits if embedding is None else _pooled(embedding), logits)

    def example_tokens(self, count: int) -> dict[str, Tensor]:
        """Return tokens (B, N, D) of each modality that `fuse` takes, on which to try it."""
        return {name: self._absent(name, count) for name in self.modalities}

    def _raw(self, count: int) -> dict[str, Tensor]:
        """Return raw inputs for the code before the encoders; nothing depends on them."""
        raw = {name: self.get_buffer(f"raw_{name}") for name in self.modalities}
        return {name: value.expand(count, *value.shape[1:]) for name, value in raw.items()}

    def _outputs(self, tokens: Tokens, count: int, names: Collection[str]) -> dict[str, Any]:
        """Return outputs of encoders, from tokens or from the stand-ins for absent ones."""
        whole = {
            name: tokens[name] if name in tokens else self._absent(name, count) for name in names
        }
        return {name: self._features[name].output(own, name) for name, own in whole.items()}

    def _absent(self, name: str, count: int) -> Tensor:
        """Return what stands for a modality that is absent: tokens (B, N, D)."""
        tokens = self.get_buffer(f"absent_{name}").expand(count, -1, -1)
        spread = self.get_buffer(f"spread_{name}")
        if not spread.numel():
            return tokens
        noise = torch.randn(tokens.shape, generator=torch.Generator().manual_seed(0))
        return tokens + spread * noise.to(tokens)

    def _linear_head(self) -> tuple[nn.Module, nn.Linear]:
        """Return (before, linear) as `dasp.core.contract.HasLinearHead` says."""
        (linear,) = self._heads()
        assert isinstance(linear, nn.Linear)
        return nn.Identity(), linear

    def close(self) -> None:
        """Leave the model as it was before `wrap`."""
        if not self.closed:
            close_gates({*self._encoders().values(), *self._heads()})
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@torch.inference_mode(False)
@torch.no_grad()
def wrap(
    model: nn.Module,
    *,
    encoders: Mapping[str, str],
    inputs: Inputs,
    head: str | None = None,
    absent: Absent | Mapping[str, Absent] = "zeros",
    call: Call | None = None,
    channels: Mapping[str, int] | None = None,
    task: str | None = None,
) -> Wrapped:
    """Make any `nn.Module` a model of the contract, without changing a line of it.

    Args:
        model: a model of one or several inputs that returns logits (B, C).
        encoders: the module of each modality, by its name in `model.named_modules()`. Modalities
            may share one, if they are named in the order of its calls.
        inputs: a batch {modality: (B, ...)} of at least 2 samples, on which the model is tried. If
            `absent` is "mean" or "noise", give about 64 clean ones.
        head: the name of the module whose input is the embedding; None: the logits serve as it.
        absent: what stands for the feature of a modality that is absent, or that is left out to
            look at another one: "zeros", the "mean" over `inputs`, "noise" with the mean and spread
            of `inputs`, or a tensor (D,) or (N, D); one for all, or by modality.
        call: how to call the model: `lambda model, inputs: model(inputs["audio"], …)`. By default
            inputs are passed by keyword if the parameters of `forward` have their names, otherwise
            in their own order or, if `forward` takes only one, as a dict.
        channels: the axis of the channels in the output of an encoder, by modality. By default
            that of the last layer in it: 1 for convolutions, -1 for others.
        task: what the outputs mean. Only "classification", of classes that exclude each other, can
            be adapted; by default what the model says in its own `task`, or in its Hugging Face
            `config.problem_type`.
    """
    model = own_model(model)
    for name in (*encoders.values(), *([] if head is None else [head])):
        _check_module(model, name)
    _check_samples(inputs, encoders)
    call = call or calling(model, tuple(inputs))
    wrapped = Wrapped(model, encoders, head, call, task or declared_task(model))
    wrapped.training = model.training
    try:
        with evaluating(model):
            _learn_features(wrapped, inputs, channels or {})
            _learn_absent(wrapped, inputs, absent)
            check_parts(wrapped)
            _check_agreement(wrapped, {name: value[:8] for name, value in inputs.items()})
    except BaseException:
        wrapped.close()
        raise
    return wrapped


def own_model(model: nn.Module) -> nn.Module:
    """Return the model inside a compiled one; refuse what cannot be run module by module."""
    if not isinstance(model, nn.Module):
        raise ContractError(f"a model must be an nn.Module, not {type(model).__name__}.")
    kind = type(model).__name__
    if isinstance(model, Wrapped):
        raise ContractError("the model is wrapped already: pass it to dasp.adapt().")
    if isinstance(model, torch._dynamo.OptimizedModule):
        return own_model(model._orig_mod)
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise ContractError(
            f"{kind} runs copies of the model, which wrap() cannot follow: pass model.module. "
            "docs/distributed.md says how several devices share one stream."
        )
    if isinstance(model, torch.jit.ScriptModule) or any(
        module._compiled_call_impl is not None for module in model.modules()
    ):
        raise ContractError(
            f"this {kind} is compiled by torch.jit or compile(), which leaves no modules to name: "
            "pass the model that it was made of, or torch.compile(model)."
        )
    return model


def declared_task(model: nn.Module) -> str:
    """Return what a model says about the meaning of its outputs; classification by default."""
    told = getattr(model, "task", None)
    if not isinstance(told, str):
        told = getattr(getattr(model, "config", None), "problem_type", None)
    return TASK if told in (None, *CLASSIFYING) else str(told)


def _check_module(model: nn.Module, name: str) -> None:
    known = [known for known, _ in model.named_modules() if known]
    if name not in known:
        near = difflib.get_close_matches(str(name), known, n=5, cutoff=0.4)
        short = dict.fromkeys([*near, *(child for child, _ in model.named_children())])
        raise OptionError(unknown_name(f"module of {type(model).__name__}", str(name), [*short]))


def _check_samples(inputs: Inputs, encoders: Mapping[str, str]) -> None:
    if not isinstance(inputs, Mapping) or set(inputs) != set(encoders) or not encoders:
        given = list(inputs) if isinstance(inputs, Mapping) else type(inputs).__name__
        raise InputError(
            f"inputs must be a dict of tensors of {list(encoders)}, not {given}: name an encoder "
            "for each, and leave what is not a sensor, such as a mask, to call=."
        )
    counts = {name: len(value) for name, value in inputs.items()}
    if len(set(counts.values())) > 1 or min(counts.values()) < 2:
        raise InputError(f"inputs must be at least 2 samples of each modality, not {counts}.")


def calling(model: nn.Module, names: Collection[str]) -> Call:
    """Return how to call a model with inputs of these names, by the parameters of its `forward`."""
    parameters = inspect.signature(model.forward).parameters
    any_name = any(p.kind is p.VAR_KEYWORD for p in parameters.values()) and len(parameters) == 1
    if any_name or all(name in parameters for name in names):
        return lambda model, inputs: model(**{name: inputs[name] for name in names})
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters.values() if p.kind in kinds and p.default is p.empty]
    any_number = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    if len(needed) == len(names) or any_number or (len(names) == 1 and not needed):
        return lambda model, inputs: model(*(inputs[name] for name in names))
    if len(needed) == 1:
        return lambda model, inputs: model({name: inputs[name] for name in names})
    raise ContractError(
        f"forward({', '.join(parameters)}) of {type(model).__name__} does not tell how it takes "
        f"{list(names)}: give call=lambda model, inputs: model(…)."
    )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode in this block."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def logits_of(output: Any) -> Tensor:
    """Return the logits (B, C) in the output of a model."""
    found = output["logits"] if isinstance(output, Mapping) and "logits" in output else output
    matrices: list[Tensor] = [v for v in tree_leaves(found) if is_float(v) and v.ndim == 2]
    if len(matrices) == 1:
        return matrices[0]
    shapes = [tuple(leaf.shape) for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
    raise ContractError(
        f"the model returned {type(output).__name__} with tensors {shapes}, and logits are (B, C): "
        "give call=lambda model, inputs: … that returns the logits."
    )


def _pooled(embedding: Tensor) -> Tensor:
    """Return (B, D) of (B, D), (B, N, D) or (B, D, H, W)."""
    if embedding.ndim == 3:
        return embedding.mean(dim=1)
    return embedding.flatten(2).mean(dim=2) if embedding.ndim > 3 else embedding


def _learn_features(wrapped: Wrapped, inputs: Inputs, channels: Mapping[str, int]) -> None:
    """Run a few samples, and one fewer, to see what the encoders return."""
    few = {name: value[: min(len(value), 3)] for name, value in inputs.items()}
    encoders, paths = wrapped._encoders(), wrapped.config["encoders"]
    with _last_layers(encoders) as layers:
        run, output = _run_first(wrapped, few)
    fewer = wrapped.run({name: value[1:] for name, value in few.items()}, {})[0]
    for name, path in paths.items():
        if name not in run.computed:
            raise ContractError(f"'{path}' ({name}) did not run: name another module.")
    if wrapped.config["head"] is not None and run.embedding is None:
        raise ContractError(f"no tensor entered '{wrapped.config['head']}': name another head.")
    widths: dict[str, int] = {}
    wrapped.embed_dim, wrapped.num_classes = widths, logits_of(output).shape[1]
    for name, path in paths.items():
        leaves, spec = tree_flatten(run.computed[name])
        pairs = zip(leaves, tree_leaves(fewer.computed[name]), strict=True)
        axes = tuple(_samples_axis(*pair, len(few[name])) for pair in pairs)
        tensors = [i for i, v in enumerate(leaves) if axes[i] is not None and is_float(v)]
        used = [i for i in tensors if leaves[i].ndim > 1 and _matters(wrapped, few, run, name, i)]
        if len(used) != 1:
            raise ContractError(
                f"the prediction depends on {len(used)} of the {len(tensors)} tensors that "
                f"'{path}' ({name}) returns, and must depend on one: name another module."
            )
        value = leaves[used[0]].movedim(axes[used[0]] or 0, 0)
        axis = channels.get(name, _channels_axis(value, layers.get(encoders[name]))) % value.ndim
        first = [
            leaf if own is None else leaf.narrow(own, 0, leaf.shape[own] // len(few[name]))
            for leaf, own in zip(leaves, axes, strict=True)
        ]
        feature = wrapped._features[name] = _Feature(tuple(first), axes, spec, used[0], axis)
        if not _near(feature.tokens(run.computed[name])[1:], feature.tokens(fewer.computed[name])):
            raise ContractError(
                f"what '{path}' ({name}) returns for a sample depends on the others in the batch, "
                "or is not in their order: name another module."
            )
        widths[name] = value.shape[axis]
        wrapped.register_buffer(f"raw_{name}", inputs[name][:1].clone(), persistent=False)


def _run_first(wrapped: Wrapped, inputs: Inputs) -> tuple[Pass, Any]:
    """Run the model for the first time; say what to do if it cannot be called in this way."""
    try:
        return wrapped.run(inputs, {})
    except ContractError:
        raise
    except Exception as error:
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in inputs.items())
        raise ContractError(
            f"{type(wrapped.model).__name__} failed on {shapes} ({type(error).__name__}: {error}): "
            "if it is called in another way, give call=lambda model, inputs: model(…)."
        ) from error


def _samples_axis(leaf: Any, fewer: Any, count: int) -> int | None:
    """Return the axis in which the output for one of `count` samples fewer is shorter."""
    if not (isinstance(leaf, Tensor) and leaf.ndim == fewer.ndim):
        return None
    pairs = enumerate(zip(leaf.shape, fewer.shape, strict=True))
    axes = (axis for axis, (size, less) in pairs if size != less and (size - less) * count == size)
    return next(axes, None)


def _matters(wrapped: Wrapped, inputs: Inputs, run: Pass, name: str, place: int) -> bool:
    """Tell whether prediction or embedding depend on a tensor in the output of an encoder."""
    leaves, spec = tree_flatten(run.computed[name])
    noise = torch.randn(leaves[place].shape, generator=torch.Generator().manual_seed(0))
    leaves[place] = leaves[place] + (1 + leaves[place].abs().max()) * noise.to(leaves[place])
    told = []
    for changed in (run.computed[name], tree_unflatten(leaves, spec)):
        through, output = wrapped.run(inputs, {**run.computed, name: changed})
        told.append(
            [logits_of(output), *([] if through.embedding is None else [through.embedding])]
        )
    return any(not torch.allclose(one, other) for one, other in zip(*told, strict=True))


@contextmanager
def _last_layers(
    encoders: Mapping[str, nn.Module],
) -> Iterator[dict[nn.Module, tuple[nn.Module, Any]]]:
    """Note the last layer with weights that runs in each encoder, and its output."""
    layers: dict[nn.Module, tuple[nn.Module, Any]] = {}

    def note(encoder: nn.Module, layer: nn.Module, _: Any, output: Any) -> None:
        layers[encoder] = layer, tree_leaves(output)[0]

    hooks = [
        layer.register_forward_hook(partial(note, encoder))
        for encoder in set(encoders.values())
        for layer in encoder.modules()
        if next(layer.parameters(recurse=False), None) is not None
    ]
    try:
        yield layers
    finally:
        for hook in hooks:
            hook.remove()


def _channels_axis(value: Tensor, layer: tuple[nn.Module, Any] | None) -> int:
    """Return the axis of (B, …) that is as long as the channels of the layer that made it."""
    last = value.ndim - 1
    if layer is not None and isinstance(layer[1], Tensor):
        first = isinstance(layer[0], CHANNELS_FIRST)
        width = layer[1].shape[1 if first else -1]
        for axis in (1, last) if first else (last, 1):
            if value.shape[axis] == width:
                return axis
    return 1 if value.ndim > 3 else last


def _learn_absent(wrapped: Wrapped, inputs: Inputs, absent: Absent | Mapping[str, Absent]) -> None:
    """Keep what stands for each modality, (1, N, D), and its spread if it is noise."""
    learned = False
    for name, tokens in wrapped.encode(inputs).items():
        kind = absent.get(name, "zeros") if isinstance(absent, Mapping) else absent
        value, spread = tokens.mean(dim=0, keepdim=True), tokens.new_empty(0)
        if isinstance(kind, Tensor):
            if kind.shape not in (value.shape[2:], value.shape[1:]):
                fits = f"{tuple(value.shape[2:])} or {tuple(value.shape[1:])}"
                raise OptionError(f"absent '{name}' has shape {tuple(kind.shape)}, not {fits}.")
            value = kind.detach().to(value).expand_as(value).clone()
        elif kind == "zeros":
            value = torch.zeros_like(value)
        elif kind == "noise":
            spread = tokens.std(dim=0, keepdim=True)
        elif kind != "mean":
            raise OptionError(unknown_name("stand-in", str(kind), ("mean", "zeros", "noise")))
        wrapped.register_buffer(f"absent_{name}", value)
        wrapped.register_buffer(f"spread_{name}", spread)
        learned |= isinstance(kind, str) and kind != "zeros"
    if learned and len(tokens) < FEW:
        warnings.warn(
            f"what stands for an absent modality is taken from the {len(tokens)} samples given to "
            "wrap(), and fit() does not change it: give about 64 clean ones as inputs.",
            stacklevel=4,  # the caller of wrap(), which has two decorators
        )


def _check_agreement(wrapped: Wrapped, inputs: Inputs) -> None:
    """Compare encode and fuse with the model's own forward, and each encoder alone with all."""
    tokens = wrapped.encode(inputs)
    fused = check_fused(wrapped.fuse(tokens), len(next(iter(inputs.values()))), wrapped)
    check_logits(fused.logits, wrapped)
    if not _near(fused.logits, logits_of(wrapped.run(inputs, {})[1])):
        raise ContractError(
            "with its encoders' outputs given, the model predicts something else: it reads its "
            "inputs past them, or draws random numbers. Name modules that all of an input passes."
        )
    for name, together in tokens.items():
        if not _near(wrapped.encode({name: inputs[name]})[name], together):
            raise ContractError(
                f"the output of '{wrapped.config['encoders'][name]}' depends on more than the "
                f"input '{name}': name a module before the modalities meet, and give inputs in the "
                "order in which forward takes them."
            )
        if not torch.isfinite(wrapped.fuse({name: together}).logits).all():
            raise ContractError(
                f"from '{name}' alone the model predicts NaN or Inf: give absent=\"mean\", or a "
                "tensor, that stands for the feature of the others."
            )
    widths = {token_width(wrapped, name) for name in tokens} | {fused.embedding.shape[1]}
    if len(widths) == 1:
        (wrapped.embed_dim,) = widths
    heads = wrapped._heads()
    if heads and isinstance(heads[0], nn.Linear) and _near(heads[0](fused.embedding), fused.logits):
        wrapped.linear_head = wrapped._linear_head  # type: ignore[assignment]


def _near(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-3, atol=1e-4)
