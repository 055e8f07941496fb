"""Readers of model files; `text.opening` finds the format from the content.

A :class:`ModelFile` has GGUF's names and keys whatever the format: names of tensors
(``token_embd.weight``, ``blk.0.attn_q.weight``, ...), metadata (``general.architecture``,
``llama.block_count``, ...) and the tokenizer (``tokenizer.ggml.*``). Tensors are views of mapped
pages; those stored otherwise than GGUF wants them are derived on demand. Every count in a file is
compared with the bytes that are left before anything is allocated for it.

Metadata of the model's architecture that is unknown or not implemented, and tensors without a use,
are refused by name, since ignoring them would run another model. Keys that cannot change a result
(``rope.scaling.finetuned``, ``pooling_type``, neutral factors) are skipped, and `halfbyte info`
lists them. Weights are not searched for infinities when they are opened; if logits are not finite,
the tensor to blame is searched and named.
"""

from halfbyte.formats.model_file import MetadataValue, ModelFile

__all__ = ["MetadataValue", "ModelFile"]
