"""Compares gradients with PyTorch's: of every operator, and through models of all architectures.

    make judge                  # all, or some models: python -m tests.judges.gradients llama gpt2

Of a model it is that of the token embedding, through which all layers' gradients pass, for a random
weight of each logit. Models with an operator that has no gradient are named.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from tests.judges.architectures import APART, built
from tests.quantize.tuning import cases
from tests.quantize.tuning.cases import CASES, Array, normal
from tests.text.architectures import models
from torch import Tensor
from torch.nn import functional

from halfbyte.core.backends import open_program
from halfbyte.core.passes import plan_memory
from halfbyte.errors import HalfbyteError, UnsupportedError
from halfbyte.quantize.tuning.reverse import reverse
from halfbyte.text.opening import open_model
from halfbyte.text.planning import Settings, capture_model
from halfbyte.weights import Q4_0

BOUND = 1e-4  # of the largest element of a gradient

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "clip": lambda x: torch.clamp(x, 0.3, 1.6),
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.3),
    "sigmoid": torch.sigmoid,
    "hard_sigmoid": lambda x: torch.clamp(0.3 * x + 1.6, 0, 1),
    "hard_swish": functional.hardswish,
    "tanh": lambda x: 0.3 * torch.tanh(x / 0.3),
    "erf": torch.erf,
    "exp": torch.exp,
    "sqrt": torch.sqrt,
    "reciprocal": torch.reciprocal,
    "neg": torch.neg,
    "abs": torch.abs,
    "softplus": functional.softplus,
}


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    parts = x.reshape(len(x), -1, len(weight))
    return functional.rms_norm(parts, (len(weight),), weight, 0.1).reshape(x.shape)


def _rotate(interleaved: bool) -> Callable[[Tensor], Tensor]:
    def rotate(x: Tensor) -> Tensor:
        angles = torch.from_numpy(cases.RADIANS[cases.BEFORE :, :3]).float()[: len(x), None]
        heads = x.reshape(len(x), -1, cases.WIDTH)
        pairs, rest = heads[..., :6], heads[..., 6:]
        pairs = pairs.unflatten(-1, (3, 2) if interleaved else (2, 3))
        if not interleaved:
            pairs = pairs.transpose(-1, -2)
        turned = torch.view_as_complex(pairs.contiguous()) * torch.polar(
            torch.ones_like(angles), angles
        )
        real = torch.view_as_real(turned)
        flat = (real if interleaved else real.transpose(-1, -2)).flatten(-2)
        return torch.cat([flat, rest], -1).reshape(x.shape)

    return rotate


def _attend(window: int, softcap: float, slopes: bool, sinks: bool, before: int = cases.BEFORE):
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        case = cases.CASES["attention-later"].cached
        old = (case["k"].transpose(0, 1, 3, 2).reshape(cases.KV, -1, cases.WIDTH), case["v"])
        keys, values = (
            torch.cat([torch.from_numpy(o[:, :before]),
                       x.reshape(len(x), cases.KV, -1).transpose(0, 1)], 1)
            .repeat_interleave(cases.HEADS // cases.KV, 0)
            for o, x in zip(old, (k, v), strict=True)
        )  # fmt: skip
        queries = q.reshape(len(q), cases.HEADS, -1).transpose(0, 1)
        scores = 0.4 * queries @ keys.transpose(1, 2)
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        away = torch.arange(keys.shape[1]) - (before + torch.arange(len(q)))[:, None]
        if slopes:
            scores = scores + torch.from_numpy(normal(cases.HEADS, seed=8))[:, None, None] * away
        hidden = (away > 0) | (away <= -(window or 99))
        scores = scores.masked_fill(hidden, -torch.inf)
        if sinks:
            each = torch.from_numpy(normal(cases.HEADS, seed=9))[:, None, None]
            scores = torch.cat([scores, each.expand(-1, len(q), 1)], -1)
        weights = torch.softmax(scores, -1)[..., : keys.shape[1]]
        return (weights @ values).transpose(0, 1).reshape(q.shape)

    return attend


def _gathered(w: Tensor, *ids: int) -> Tensor:
    rows = [w[i] if 0 <= i < len(w) else torch.zeros(w.shape[1]) for i in ids]
    return torch.stack(rows)


def _quantized(x: Tensor) -> Tensor:
    return x @ torch.from_numpy(Q4_0.decode(Q4_0.encode(normal(7, 32, seed=2)))).T


THEIRS: dict[str, Callable[..., Tensor]] = {
    "matmul": lambda x, w, r: r + x @ w.T,
    "matmul-q4_0": _quantized,
    "gather": lambda w: _gathered(w, 3, 1, 3, -1, 9),
    "tied": lambda w: _gathered(w, 3, 1, 3) ** 2 @ w.T,
    "last_rows": lambda x: x[-2:],
    **{f"add{kind}": torch.add for kind in ("", "-row")},
    **{f"mul{kind}": torch.mul for kind in ("", "-row")},
    "silu": functional.silu,
    "gelu-none": functional.gelu,
    "gelu-tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "softmax": lambda x: torch.softmax(x, -1),
    "divergence": lambda x: functional.kl_div(
        torch.log_softmax(x, -1), torch.log_softmax(torch.from_numpy(2 * cases.Z), -1),
        reduction="none", log_target=True,
    ).sum(-1, keepdim=True),
    "rms_norm": _rms_norm,
    "rms_norm-heads": _rms_norm,
    "layer_norm": lambda x, weight, bias: functional.layer_norm(x, (12,), weight, bias, 0.1),
    "rotary": _rotate(False),
    "rotary-interleaved": _rotate(True),
    "attention": _attend(0, 0.0, False, False, 0),
    "attention-later": _attend(0, 0.0, False, False),
    "attention-window": _attend(2, 0.0, False, False),
    "attention-softcap": _attend(0, 0.7, False, False),
    "attention-slopes": _attend(0, 0.0, True, False),
    "attention-sinks": _attend(3, 0.9, True, True),
    **{f"unary-{function}": theirs for function, theirs in UNARY.items()},
}  # fmt: skip


def difference(ours: Array, theirs: Array) -> float:
    """The largest difference, relative to the largest element."""
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def judge_operator(name: str) -> float:
    """The largest difference of all gradients and the result."""
    case = CASES[name]
    seed = normal(*case.run(case.operands)["result"].shape, seed=7)
    ours = case.run(case.operands, seed)
    leaves = {n: torch.from_numpy(x.copy()).requires_grad_() for n, x in case.operands.items()}
    y = THEIRS[name](*leaves.values())
    y.backward(torch.from_numpy(seed))
    differences = [difference(ours["result"], y.detach().numpy())]
    for operand, leaf in leaves.items():
        assert leaf.grad is not None
        differences.append(difference(ours[operand], leaf.grad.numpy()))
    return max(differences)


def judge_model(name: str) -> float:
    """The difference of the token embedding's gradient."""
    model, ids = built(name), models.ids(name)
    logits = model(torch.tensor([ids])).logits[0]
    seed = normal(*logits.shape, seed=7)
    logits.backward(torch.from_numpy(seed))
    embedding = model.get_input_embeddings().weight.grad
    with tempfile.TemporaryDirectory() as folder:
        file = open_model(models.write(Path(folder) / f"{name}.gguf", name))
        program = capture_model(file, Settings(batch=len(ids)))
        (wanted,) = (b for b in program.buffers if b.name == "token_embd.weight")
        made = reverse(program, {"embedding": wanted})
        ours = np.zeros(wanted.shape, np.float32)
        executable = open_program(plan_memory(made.program), "numpy")
        rows = program.sizes["rows"].maximum  # a run's seeds are of its last rows
        for end in range(len(ids), 0, -rows):
            count = min(rows, end)
            executable.array(made.program.inputs["ids"])[:end] = ids[:end]
            executable.array(made.seeds["logits"])[:count] = seed[end - count : end]
            executable.run({"n": end, "position": 0, "rows": count})
            ours += executable.array(made.gradients["embedding"])
        executable.close()
        file.close()
    return difference(ours, embedding.numpy()[: len(ours)])  # further ones may be of images


def main() -> int:
    """Print both tables; 1 if a difference is too large."""
    print("largest difference of gradients, relative to the largest element")
    failed, refused = False, dict[str, list[str]]()
    for name in CASES:
        off = judge_operator(name)
        failed |= not off < BOUND
        print(f"  {name:<24}{off:.1e}")
    for name in sys.argv[1:] or [n for n in models.CONFIGS if n not in APART]:
        try:
            off = judge_model(name)
        except UnsupportedError as error:
            refused.setdefault(str(error).partition(" has no")[0], []).append(name)
            continue
        except HalfbyteError as error:
            refused.setdefault(str(error), []).append(name)
            continue
        failed |= not off < BOUND
        print(f"  {name:<24}{off:.1e}")
    for why, names in refused.items():
        print(f"  without: {', '.join(names)}: {why}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
