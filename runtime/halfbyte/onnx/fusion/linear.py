"""Products with constant matrices absorb the bias that is added to them, and the activation."""

from __future__ import annotations

from halfbyte.onnx.files.model import Node
from halfbyte.onnx.fusion.rewriter import MICROSOFT, OWN, Rewriter, make_node
from halfbyte.onnx.reference import lookup
from halfbyte.onnx.reference.signatures import signature_of

_BIASED = (
    "MatMulNBits",
    "DynamicQuantizeMatMul",
    "MatMulIntegerToFloat",
)  # products that have a bias


def fuse_linear(r: Rewriter) -> None:
    """MatMul with a constant matrix and Add of a constant vector become Linear."""
    for node in r.nodes("Add"):
        bias = r.split_constant(node)
        if bias is None or bias[1].ndim != 1 or not r.used_once(bias[0]):
            continue
        product = r.producer(bias[0], "MatMul") or r.producer(bias[0], *_BIASED, domain=MICROSOFT)
        if product is None:
            continue
        if product.domain:
            _with_bias(r, node, product, r.name_of(bias[1]))
            continue
        weight = r.constant(product.inputs[1])
        if weight is None or weight.ndim != 2 or bias[1].shape[0] != weight.shape[1]:
            continue
        inputs = [*product.inputs, r.name_of(bias[1])]
        r.replace(node, make_node("Linear", inputs, node.outputs, domain=OWN, name=product.name))


def _with_bias(r: Rewriter, node: Node, product: Node, bias: str) -> None:
    """Make the bias an input of the product."""
    definition = lookup(MICROSOFT, product.op_type, product.version or 1, str(product))
    place = signature_of(definition).inputs.index("bias")
    inputs = [*product.inputs, *[""] * (place - len(product.inputs))]
    width, weight = r.constant(bias), r.constant(product.inputs[1])
    if len(inputs) != place or width is None or weight is None:
        return
    if width.shape[0] != product.attributes.get("N", weight.shape[-1]):
        return
    new = make_node(
        product.op_type, [*inputs, bias], node.outputs, domain=MICROSOFT, version=product.version,
        name=product.name, **product.attributes,
    )  # fmt: skip
    r.replace(node, new)


def fuse_linear_activation(r: Rewriter) -> None:
    """Linear absorbs an activation, the only consumer of its result."""
    for node in r.nodes("Gelu", "Relu"):
        linear = r.producer(node.inputs[0], "Linear", domain=OWN)
        if linear is None or not r.used_once(node.inputs[0]) or linear.attributes.get("activation"):
            continue
        tanh = node.attributes.get("approximate", "none") == "tanh"
        activation = "FastGelu" if node.op_type == "Gelu" and tanh else node.op_type
        r.replace(
            node,
            make_node(
                "Linear", linear.inputs, node.outputs, domain=OWN, name=linear.name,
                activation=activation,
            ),
        )  # fmt: skip
