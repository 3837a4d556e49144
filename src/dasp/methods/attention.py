"""Find the query, key and value maps of a fusion, in models that do not name them."""

from typing import Any

import torch
from torch import Tensor, nn

from dasp.core.contract import fuse_checked, token_width
from dasp.core.errors import ContractError
from dasp.methods.turns import evaluating

JOINT = ("qkv", "to_qkv", "Wqkv", "query_key_value")
SEPARATE = (
    ("query", "key", "value"),
    ("q_proj", "k_proj", "v_proj"),
    ("to_q", "to_k", "to_v"),
    ("q_lin", "k_lin", "v_lin"),
    ("q", "k", "v"),
)
IN_TORCH = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias")
KNOWN = "nn.MultiheadAttention, or linear maps named qkv; query, key, value; q_proj, k_proj, v_proj"
TRIED = 4  # tokens per modality


def qkv_of(module: nn.Module) -> list[nn.Parameter]:
    """Return the query, key and value parameters of an attention; empty for other modules."""
    if isinstance(module, nn.MultiheadAttention):
        found = (getattr(module, name) for name in IN_TORCH)
        return [parameter for parameter in found if parameter is not None]
    for names in (*((name,) for name in JOINT), *SEPARATE):
        maps = [getattr(module, name, None) for name in names]
        if all(isinstance(own, nn.Linear) for own in maps):
            return [parameter for own in maps for parameter in own.parameters()]  # type: ignore[union-attr]
    return []


def find_fusion_qkv(model: nn.Module) -> list[nn.Parameter]:
    """Return the query, key and value parameters of the attention that runs in `fuse`.

    Which that is, and not the encoders' own, is found by running `fuse` on a few tokens.
    """
    known = {module: own for module in model.modules() if (own := qkv_of(module))}
    if not known:
        raise ContractError(f"it has no attention of a known kind ({KNOWN})")
    ran: set[nn.Module] = set()
    hooks = [module.register_forward_pre_hook(lambda one, _: ran.add(one)) for module in known]
    try:
        with evaluating(model), torch.enable_grad():
            fuse_checked(model, example_tokens(model))  # type: ignore[arg-type]
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ContractError(f"fuse() could not be tried on a few tokens ({why})") from error
    finally:
        for hook in hooks:
            hook.remove()
    if not ran:
        raise ContractError(f"fuse() runs no attention of a known kind ({KNOWN})")
    return [parameter for module, own in known.items() if module in ran for parameter in own]


def example_tokens(model: Any) -> dict[str, Tensor]:
    """Return tokens to try `fuse` on. They need a gradient: without, torch may skip modules."""
    if hasattr(model, "example_tokens"):
        return {n: v.detach().clone().requires_grad_() for n, v in model.example_tokens(2).items()}
    like = next(model.parameters())
    shapes = {name: (2, TRIED, token_width(model, name)) for name in model.modalities}
    return {name: like.new_zeros(shape, requires_grad=True) for name, shape in shapes.items()}
