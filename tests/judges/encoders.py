"""Compares tiny encoders with `transformers`, and writes the tests' goldens.

    make judge                  # or only this: python -m tests.judges.encoders

See `tests.judges.architectures`.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from tests.text.architectures import models
from tests.text.encoders import encoders

import halfbyte

BOUND = 1e-4  # of the largest number


def reference(name: str) -> tuple[dict[str, list[int]], models.F32Array]:
    """Shapes of all tensors, and vectors or scores of the texts, by `transformers` in float32."""
    values = encoders.config(name)
    if name.startswith("jina-bert-v2"):
        return jina(name, values)
    if name == "nomic-bert-moe":
        return nomic(name, values)
    config = transformers.AutoConfig.for_model(**values)
    config._attn_implementation = "eager"
    model: Any = getattr(transformers, values["architectures"][0])(config).eval()
    state = {n: t for n, t in model.state_dict().items() if t.dtype == torch.float32}
    shapes = {n: list(t.shape) for n, t in state.items()}
    own = {n: torch.from_numpy(models.values(f"{name}/{n}", tuple(s))) for n, s in shapes.items()}
    firsts: dict[int, str] = {}
    for n, tensor in state.items():  # heads that are tied to the embedding
        own[n] = own[firsts.setdefault(tensor.data_ptr(), n)]
    model.load_state_dict(own, strict=False)
    rows = []
    for text in encoders.TEXTS:
        with torch.no_grad():
            if name in encoders.RANKS:
                ids, types = encoders.pair(name, text)
                own_types = {"token_type_ids": torch.tensor([types])}
                given = own_types if name in encoders.OWN_TYPES else {}
                rows.append(model(torch.tensor([ids]), **given).logits[0])
            else:
                hidden = model.base_model(torch.tensor([encoders.ids(text)])).last_hidden_state[0]
                rows.append(hidden.mean(dim=0))
    return shapes, np.stack([np.asarray(row) for row in rows])


def jina(name: str, config: dict[str, Any]) -> tuple[dict[str, list[int]], models.F32Array]:
    """The same for Jina's encoders, which `transformers` leaves to code of theirs."""
    dim, hidden, heads = (
        config[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads")
    )
    shapes = {
        "embeddings.word_embeddings.weight": [config["vocab_size"], dim],
        "embeddings.token_type_embeddings.weight": [2, dim],
        "embeddings.LayerNorm.weight": [dim], "embeddings.LayerNorm.bias": [dim],
    }  # fmt: skip
    for layer in range(config["num_hidden_layers"]):
        matrices = dict.fromkeys(("query", "key", "value"), "attention.self.")
        parts = {f"{start}{end}": (dim, dim) for end, start in matrices.items()}
        parts |= {"attention.output.dense": (dim, dim), "mlp.wo": (dim, hidden)}
        for part, shape in parts.items():
            shapes[f"encoder.layer.{layer}.{part}.weight"] = [*shape]
            shapes[f"encoder.layer.{layer}.{part}.bias"] = [shape[0]]
        shapes[f"encoder.layer.{layer}.mlp.gated_layers.weight"] = [2 * hidden, dim]
        for norm in ("attention.output.LayerNorm", "mlp.layernorm"):
            for kind in ("weight", "bias"):
                shapes[f"encoder.layer.{layer}.{norm}.{kind}"] = [dim]
    own = {n: torch.from_numpy(models.values(f"{name}/{n}", tuple(s))) for n, s in shapes.items()}

    def linear(x: torch.Tensor, part: str) -> torch.Tensor:
        return F.linear(x, own[f"{part}.weight"], own.get(f"{part}.bias"))

    def norm(x: torch.Tensor, part: str) -> torch.Tensor:
        return F.layer_norm(x, (dim,), own[f"{part}.weight"], own[f"{part}.bias"], 1e-12)

    rows = []
    for text in encoders.TEXTS:
        ids = torch.tensor(encoders.ids(text))
        places = torch.arange(len(ids))
        slopes = torch.tensor([2.0 ** (-8 * (i + 1) / heads) for i in range(heads)])
        bias = -slopes[:, None, None] * (places - places[:, None]).abs()
        x = own["embeddings.word_embeddings.weight"][ids]
        x = norm(x + own["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(config["num_hidden_layers"]):
            at = f"encoder.layer.{layer}."
            q, k, v = (
                linear(x, f"{at}attention.self.{part}").view(len(ids), heads, -1).transpose(0, 1)
                for part in ("query", "key", "value")
            )
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
            y = linear(mixed.transpose(0, 1).reshape(len(ids), dim), f"{at}attention.output.dense")
            x = norm(x + y, f"{at}attention.output.LayerNorm")
            gate, up = linear(x, f"{at}mlp.gated_layers").chunk(2, dim=-1)
            x = norm(x + linear(F.gelu(gate) * up, f"{at}mlp.wo"), f"{at}mlp.layernorm")
        rows.append(np.asarray(x.mean(dim=0)))
    return shapes, np.stack(rows)


def nomic(name: str, config: dict[str, Any]) -> tuple[dict[str, list[int]], models.F32Array]:
    """The same for Nomic's encoder with experts, whose code `transformers` does not have."""
    dim, hidden, heads, experts = (
        config[k] for k in ("n_embd", "n_inner", "n_head", "num_experts")
    )
    shapes = {
        "embeddings.word_embeddings.weight": [config["vocab_size"], dim],
        "embeddings.token_type_embeddings.weight": [1, dim],
        "emb_ln.weight": [dim], "emb_ln.bias": [dim],
    }  # fmt: skip
    for layer in range(config["n_layer"]):
        at = f"encoder.layers.{layer}."
        parts = {"attn.Wqkv": (3 * dim, dim), "attn.out_proj": (dim, dim)}
        if layer % config["moe_every_n_layers"] == 1:
            shapes[f"{at}mlp.router.layer.weight"] = [experts, dim]
            shapes |= {f"{at}mlp.experts.mlp.{w}": [experts * hidden, dim] for w in ("w1", "w2")}
            shapes[f"{at}mlp.experts.bias"] = [dim]
        else:
            parts |= {"mlp.fc1": (hidden, dim), "mlp.fc2": (dim, hidden)}
        for part, shape in parts.items():
            shapes |= {f"{at}{part}.weight": [*shape], f"{at}{part}.bias": [shape[0]]}
        shapes |= {f"{at}norm{n}.{kind}": [dim] for n in (1, 2) for kind in ("weight", "bias")}
    own = {n: torch.from_numpy(models.values(f"{name}/{n}", tuple(s))) for n, s in shapes.items()}

    def linear(x: torch.Tensor, part: str) -> torch.Tensor:
        return F.linear(x, own[f"{part}.weight"], own[f"{part}.bias"])

    def norm(x: torch.Tensor, part: str) -> torch.Tensor:
        epsilon = config["layer_norm_epsilon"]
        return F.layer_norm(x, (dim,), own[f"{part}.weight"], own[f"{part}.bias"], epsilon)

    def mixture(x: torch.Tensor, at: str) -> torch.Tensor:
        first, second = (
            own[f"{at}experts.mlp.{w}"].view(experts, hidden, dim) for w in ("w1", "w2")
        )
        weights, chosen = torch.softmax(x @ own[f"{at}router.layer.weight"].T, -1).topk(
            config["moe_top_k"]
        )
        rows = [
            sum(w * (F.gelu(row @ first[e].T) @ second[e]) for w, e in zip(*pair, strict=True))
            for row, pair in zip(x, zip(weights, chosen, strict=True), strict=True)
        ]
        return torch.stack(rows) + own[f"{at}experts.bias"]

    head = dim // heads
    rates = config["rotary_emb_base"] ** (-torch.arange(0, head, 2) / head)
    rows = []
    for text in encoders.TEXTS:
        ids = torch.tensor(encoders.ids(text))
        angles = torch.outer(torch.arange(len(ids)), rates)

        def rotated(x: torch.Tensor, angles: torch.Tensor = angles) -> torch.Tensor:
            a, b = x.chunk(2, dim=-1)
            cos, sin = angles.cos(), angles.sin()
            return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

        x = own["embeddings.word_embeddings.weight"][ids]
        x = norm(x + own["embeddings.token_type_embeddings.weight"][0], "emb_ln")
        for layer in range(config["n_layer"]):
            at = f"encoder.layers.{layer}."
            q, k, v = (
                part.view(len(ids), heads, head).transpose(0, 1)
                for part in linear(x, f"{at}attn.Wqkv").chunk(3, dim=-1)
            )
            mixed = F.scaled_dot_product_attention(rotated(q), rotated(k), v)
            y = linear(mixed.transpose(0, 1).reshape(len(ids), dim), f"{at}attn.out_proj")
            x = norm(x + y, f"{at}norm1")
            if f"{at}mlp.fc1.weight" in own:
                y = linear(F.gelu(linear(x, f"{at}mlp.fc1")), f"{at}mlp.fc2")
            else:
                y = mixture(x, f"{at}mlp.")
            x = norm(x + y, f"{at}norm2")
        rows.append(np.asarray(x.mean(dim=0)))
    return shapes, np.stack(rows)


def main() -> int:
    """Print the table and write goldens; 1 if a difference is too large."""
    print(f"encoders: largest difference, relative to the largest number; transformers "
          f"{transformers.__version__}, torch {torch.__version__}")  # fmt: skip
    goldens = {}
    for name in encoders.CONFIGS:
        shapes, wanted = reference(name)
        encoded = base64.b64encode(wanted.astype(np.float32).tobytes()).decode()
        goldens[name] = {"tensors": shapes, "values": encoded}
    encoders.GOLDENS.write_text(json.dumps(goldens, indent=0) + "\n", encoding="utf-8")
    failed = False
    for name in encoders.CONFIGS:
        wanted = encoders.expected(name)
        with tempfile.TemporaryDirectory() as folder:
            path = encoders.write(Path(folder), name)
            with halfbyte.load_encoder(path) as model:
                rank = name in encoders.RANKS
                texts = encoders.TEXTS
                found = model.rerank(encoders.QUERY, texts) if rank else model.embed(texts)
        difference = models.largest_difference(found, wanted)
        failed |= not difference < BOUND
        print(f"  {name:<20}{difference:.1e}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
