"""Compares the models of tools/onnx_models with `transformers`, for the same weights.

    make judge

The graphs run in ONNX Runtime, which shows whether they are right, and in halfbyte.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
import transformers
from tools.get_minilm import get_minilm
from tools.onnx_models import CONFIGS, bert, gpt2, minilm
from tools.onnx_models.weights import Stored

import halfbyte

BOUND = 1e-4  # of an output's largest value
SESSIONS: dict[str, Callable[..., Any]] = {
    "onnxruntime": onnxruntime.InferenceSession,
    "halfbyte": halfbyte.InferenceSession,
}
Arrays = Mapping[str, npt.NDArray[Any]]


def shaken(model: torch.nn.Module) -> torch.nn.Module:
    """The model with noise on all parameters, so that none is 1 or 0."""
    torch.manual_seed(1)
    with torch.no_grad():
        for values in model.parameters():
            values += 0.1 * torch.randn_like(values)
    return model.eval()


def weights(model: torch.nn.Module) -> Stored:
    """The weights by name, without the prefix of models with a head."""
    return Stored(
        {n.removeprefix("transformer."): t.numpy() for n, t in model.state_dict().items()}
    )


def text(vocabulary: int) -> dict[str, npt.NDArray[Any]]:
    """Two sentences, the second shorter, and both types of tokens."""
    ids = np.random.default_rng(0).integers(0, vocabulary, (2, 12))
    mask = np.ones_like(ids)
    mask[1, 7:] = 0
    types = np.zeros_like(ids)
    types[:, 4:] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def mean_of(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over the tokens of the mask, of unit length."""
    total = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return torch.nn.functional.normalize(total)


def encoder(
    model: torch.nn.Module, build: Callable[[bert.BertConfig], onnx.ModelProto],
    config: bert.BertConfig,
) -> tuple[onnx.ModelProto, Arrays, Arrays]:  # fmt: skip
    """A graph, its feeds, and the outputs of `transformers` for them."""
    feeds = text(config.vocabulary)
    tensors = {n: torch.from_numpy(v) for n, v in feeds.items()}
    with torch.no_grad():
        outputs = model(**tensors)
    expected = {"pooler_output": outputs.pooler_output, "last_hidden_state": outputs[0]}
    if config.pooled:
        del expected["last_hidden_state"]
        expected["sentence_embedding"] = mean_of(outputs[0], tensors["attention_mask"])
    return build(config), feeds, {n: t.numpy() for n, t in expected.items()}


def small_encoder(**options: Any) -> tuple[onnx.ModelProto, Arrays, Arrays]:
    """`bert-small` with random weights."""
    c = bert.BertConfig(2, 64, 4, 128, vocabulary=1000, positions=128, pooler=True, **options)
    config = transformers.BertConfig(
        vocab_size=c.vocabulary, hidden_size=c.width, num_hidden_layers=c.layers,
        num_attention_heads=c.heads, intermediate_size=c.ffn, max_position_embeddings=c.positions,
        layer_norm_eps=c.epsilon, attn_implementation="eager",
    )  # fmt: skip
    model = shaken(transformers.BertModel(config))
    return encoder(model, lambda c: bert.build(c, weights(model)), c)


def trained_encoder(**options: Any) -> tuple[onnx.ModelProto, Arrays, Arrays]:
    """MiniLM."""
    folder = get_minilm()
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    c = bert.BertConfig(6, 384, 12, 1536, pooler=True, **options)
    return encoder(model, lambda c: minilm.build(c, folder), c)


def decoder(**options: Any) -> tuple[onnx.ModelProto, Arrays, Arrays]:
    """`gpt2-small` with random weights and an empty past."""
    c: gpt2.Gpt2Config = CONFIGS["gpt2-small"]
    config = transformers.GPT2Config(
        vocab_size=c.vocabulary, n_embd=c.width, n_layer=c.layers, n_head=c.heads,
        n_positions=c.positions, layer_norm_epsilon=c.epsilon, attn_implementation="eager",
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = shaken(transformers.GPT2LMHeadModel(config))
    feeds = text(c.vocabulary)
    del feeds["token_type_ids"]
    feeds["position_ids"] = np.tile(np.arange(12), (2, 1))
    with torch.no_grad():
        logits = model(**{n: torch.from_numpy(v) for n, v in feeds.items()}).logits
    size = c.width // c.heads
    for index in range(c.layers):
        for kind in ("key", "value"):
            empty = np.zeros((2, c.heads, 0, size), np.float32)
            feeds[f"past_key_values.{index}.{kind}"] = empty
    return gpt2.build(c, weights(model)), feeds, {"logits": logits.numpy()}


CASES = {
    "bert-small": small_encoder,
    "bert-small, decomposed": lambda: small_encoder(decomposed=True, opset=13),
    "bert-small, pooled": lambda: small_encoder(pooled=True),
    "minilm": trained_encoder,
    "minilm, pooled": lambda: trained_encoder(pooled=True),
    "gpt2-small": decoder,
}


def main() -> int:
    """Print the table; 1 if a difference is too large."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"largest difference of outputs, relative to the largest; transformers "
          f"{transformers.__version__}, torch {torch.__version__}")  # fmt: skip
    failed = False
    for name, case in CASES.items():
        model, feeds, expected = case()
        differences = {}
        for engine, session in SESSIONS.items():
            outputs = session(model.SerializeToString()).run(list(expected), dict(feeds))
            differences[engine] = max(
                float(np.abs(mine - theirs).max() / np.abs(theirs).max())
                for mine, theirs in zip(outputs, expected.values(), strict=True)
            )
        failed |= not max(differences.values()) < BOUND
        print(f"  {name:<24}" + "".join(f"{e:>13} {d:.1e}" for e, d in differences.items()))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
