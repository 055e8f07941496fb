"""Feed-forward parts of experts: a router chooses some for each token; their results are added up.

As in llama.cpp, a layer's experts are stacked, as in ``ffn_up_exps`` [experts, hidden, dim].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, maximum
from halfbyte.formats.derived import reordered
from halfbyte.formats.transforms import FLATTENED
from halfbyte.text.architectures._decoder import Parts, activated, glued
from halfbyte.text.architectures._keys import Keys
from halfbyte.weights import F32, Tensor

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

MAX_EXPERTS = 1 << 10
_MAX_GROUPS = 64
_MAX_HIDDEN = 1 << 22
_SCORES = "exp_probs_b.bias"
_FACTORS = "ffn_down_exps.scale"
SOFTMAX, SIGMOID, _CHOSEN = 1, 2, 3  # llama.cpp's `expert_gating_func`

# Parts of a layer's names in config.json's folders -> GGUF's. Each expert has its own matrices, or
# they are stacked, gate and up together.
NAMES = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps",
}
SHARED = {
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}

DENSE = ("ffn_gate.", "ffn_up.", "ffn_down.")  # of layers without experts
ROUTED = (  # of those with
    "ffn_gate_inp.",
    "exp_probs_b.",
    *(f"ffn_{part}_{kind}." for kind in ("exps", "shexp") for part in ("gate", "up", "down")),
)


@dataclass(frozen=True)
class Experts:
    """Hyperparameters of a mixture, under GGUF's ``<architecture>.expert_*`` keys.

    Attributes
    ----------
    count, used : int
        All experts of a layer, and those that run for a token.
    hidden, shared : int
        Hidden elements of an expert, and of the part that runs for every token (0: none).
    sigmoid : bool
        The router's probabilities are sigmoids rather than a softmax over all experts.
    normalize : bool
        The weights of the experts that run are divided by their sum.
    scale : float
        Factor of these weights.
    dense : int
        The first layers without experts.
    layers : tuple of bool
        Which layers have experts, if not all but these.
    groups, kept : int
        Equal parts of the experts, and those of them whose experts may run.
    """

    count: int
    used: int
    hidden: int
    shared: int = 0
    sigmoid: bool = False
    normalize: bool = True
    scale: float = 1.0
    dense: int = 0
    layers: tuple[bool, ...] = ()
    groups: int = 1
    kept: int = 1

    @property
    def best(self) -> int:
        """Scores of a group that are added: DeepSeek V2 takes the largest, V3 the two largest."""
        return 2 if self.sigmoid and self.groups > 1 else 1

    def in_layer(self, number: int) -> bool:
        """Whether a layer has experts."""
        return self.layers[number] if self.layers else number >= self.dense


def read(
    keys: Keys, *, normalize: bool = True, optional: bool = False, gating: int = SOFTMAX,
    hidden: int = 0,
) -> Experts | None:  # fmt: skip
    """Hyperparameters from metadata; `normalize` and `gating` are the architecture's defaults.

    Returns None if experts are `optional` and there are none. `hidden` are the hidden elements of
    an expert, if ``feed_forward_length`` is not for all layers.
    """
    count = keys.size("expert_count", MAX_EXPERTS, 0, low=0 if optional else 1)
    if not count:
        return None
    usual = hidden or keys.size("feed_forward_length", _MAX_HIDDEN, 1)
    gating = keys.size("expert_gating_func", _CHOSEN, gating)
    experts = Experts(
        count=count,
        used=keys.size("expert_used_count", count),
        hidden=keys.size("expert_feed_forward_length", _MAX_HIDDEN, usual),
        shared=keys.size("expert_shared_feed_forward_length", _MAX_HIDDEN, 0, low=0),
        sigmoid=gating == SIGMOID,
        normalize=gating == _CHOSEN or keys.boolean("expert_weights_norm", normalize),
        scale=keys.optional("expert_weights_scale") or 1.0,
        dense=keys.size("leading_dense_block_count", 1 << 10, 0, low=0),
    )
    return _in_groups(keys, experts)


def _in_groups(keys: Keys, experts: Experts) -> Experts:
    """With the groups of which some are chosen before experts, if there are any."""
    groups = keys.size("expert_group_count", _MAX_GROUPS, 1, low=0) or 1
    kept = keys.size("expert_group_used_count", groups, None if groups > 1 else 1, low=0) or 1
    experts = replace(experts, groups=groups, kept=kept)
    each = experts.count // groups
    if experts.count % groups or each < experts.best or each * kept < experts.used:
        raise keys.error(
            "expert_group_count",
            f"{experts.count} experts, of which {experts.used} run, do not fit {kept} of {groups} "
            "groups",
        )
    return experts


def translate(
    config: Translation, *, count: str, hidden: str = "", used: str = "num_experts_per_tok"
) -> None:
    """Set the sizes of experts by the keys of config.json that hold them.

    Without `hidden` that is the size of feed-forward parts.
    """
    keys, values = config.keys, config.metadata
    experts = keys.integer(count, maximum=MAX_EXPERTS)
    values["expert_count"] = np.uint32(experts)
    values["expert_used_count"] = np.uint32(keys.integer(used, maximum=experts))
    width, dim = config.size("feed_forward_length"), config.size("embedding_length")
    if hidden:
        width = keys.integer(hidden)
        values["expert_feed_forward_length"] = np.uint32(width)
    config.shapes |= {
        "ffn_gate_inp": (experts, dim),
        "ffn_gate_exps": (experts, width, dim),
        "ffn_up_exps": (experts, width, dim),
        "ffn_gate_up_exps": (experts, 2 * width, dim),
        "ffn_down_exps": (experts, dim, width),
    }


def translate_groups(config: Translation, groups: int = 1, kept: int = 1) -> None:
    """Set the groups of experts, by default these, of which some are chosen before experts."""
    groups = config.keys.integer("n_group", groups, maximum=_MAX_GROUPS)
    kept = config.keys.integer("topk_group", kept, maximum=groups)
    if groups > 1:
        config.metadata["expert_group_count"] = np.uint32(groups)
        config.metadata["expert_group_used_count"] = np.uint32(kept)


def translate_dense(config: Translation, layers: int) -> None:
    """Set how many of the first layers have no experts."""
    count = config.size("block_count")
    config.metadata["leading_dense_block_count"] = np.uint32(layers)
    config.uneven += tuple(
        f"blk.{layer}.{part}"
        for layer in range(min(count, 1 << 10))
        for part in (ROUTED if layer < layers else DENSE)
    )


def translate_shared(config: Translation, hidden: int) -> None:
    """Set the sizes of the part that runs for every token."""
    config.metadata["expert_shared_feed_forward_length"] = np.uint32(hidden)
    dim = config.size("embedding_length")
    config.shapes |= {
        "ffn_gate_inp_shexp": (1, dim),
        "ffn_gate_shexp": (hidden, dim),
        "ffn_up_shexp": (hidden, dim),
        "ffn_gate_up_shexp": (2 * hidden, dim),
        "ffn_down_shexp": (dim, hidden),
    }
    config.transforms["ffn_gate_inp_shexp.weight"] = FLATTENED


def mixture(
    model: Parts, x: Buffer, name: str, experts: Experts, kind: str, router: Buffer | None = None,
    *, gated: bool = True,
) -> Buffer:  # fmt: skip
    """The sum of the results of each token's experts, [n, dim].

    An expert computes act(gate) * up, or act(up), through `down`, all of them with biases if there
    are any; the activation is one of :func:`glued`. The router reads x, or what it is given.
    Results may have a factor for each expert (``ffn_down_exps.scale``).
    """
    e, dim = experts, maximum(x.shape[1])
    logits = model.linear(router or x, name + "ffn_gate_inp", e.count, bias=None)
    p = ops.unary(logits, function="sigmoid") if e.sigmoid else ops.softmax(logits)
    scores = None
    if model.has(name + _SCORES):  # by which experts are chosen, in place of probabilities
        bias = model.tensor(name + _SCORES, e.count).decode()
        scores = ops.add(p, model.row(name + _SCORES, bias))
    weights, places, rows, ids, ends = ops.route_experts(
        p, scores, u=e.used, normalize=e.normalize, scale=e.scale, groups=e.groups, kept=e.kept,
        best=e.best,
    )  # fmt: skip
    x = ops.expert_rows(x, rows)
    if model.has(name + _FACTORS):
        factors = model.tensor(name + _FACTORS, e.count).decode()[:, None]
        each = ops.expert_rows(model.program.constant(name + _FACTORS, factors), ids)
        each = ops.expert_rows(each.view((model.n.maximum * e.used, 1)), places)
        weights = ops.mul(weights, each)

    def product(x: Buffer, part: str, outputs: int, inputs: int) -> Buffer:
        w = _stack(model, name, part, (e.count, outputs, inputs))
        y: Buffer = ops.matmul_experts(x, w, ends, u=e.used)
        bias = f"{name}ffn_{part}_exps.bias"
        if model.has(bias):
            values = model.tensor(bias, e.count, outputs).decode()
            y = ops.add(y, ops.expert_rows(model.program.constant(bias, values), ids))
        return y

    parts = ("gate", "up") if gated else ("up",)
    *gate, up = (product(x, part, e.hidden, dim) for part in parts)
    y = glued(model, gate[0], up, kind) if gate else activated(up, kind)
    y = product(y, "down", dim, e.hidden)
    sums: Buffer = ops.sum_experts(y, weights, places, d=dim)
    return sums


def _stack(model: Parts, name: str, part: str, shape: tuple[int, int, int]) -> Buffer:
    """The matrices of all experts; those of gate and up may be in one tensor, gate first."""
    whole = f"{name}ffn_gate_up_exps.weight"
    if part == "down" or not model.has(whole):
        return model.weight(f"{name}ffn_{part}_exps.weight", *shape)
    count, rows, columns = shape
    both = model.tensor(whole, count, 2 * rows, columns)
    numbers = np.arange(both.row_count).reshape(count, 2, rows)[:, ("gate", "up").index(part)]
    return model.program.weight(reordered(both, f"{whole}[{part}]", numbers, both))


def gated(model: Parts, x: Buffer, y: Buffer, name: str) -> Buffer:
    """Rows of y times the sigmoid of x's products with a vector of the file."""
    dim = maximum(x.shape[1])
    vector = model.tensor(name, dim).decode()
    row = Tensor(name, F32, (1, dim), F32.encode(vector[None]).reshape(-1))
    gate = ops.unary(ops.matmul(x, model.program.weight(row)), function="sigmoid")
    ids = model.program.input("ids", "i32", (model.n,))
    places = ops.range_from(ids, start=0).view((model.n, 1))
    products: Buffer = ops.sum_experts(y, gate, places, d=maximum(y.shape[1]))
    return products
