"""Names what a picture shows, with a model that knows some classes of things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from halfbyte.errors import HalfbyteError
from halfbyte.web.graphs.display import describe
from halfbyte.web.graphs.graph_model import GraphModel
from halfbyte.web.graphs.pictures import layout, picture_array

IMAGENET = (1000, 1001)  # classes, without and with one for the background


def for_classes(names: Sequence[str], count: int) -> Sequence[str]:
    """The names of `count` classes, of which the first may be the background; () if they differ."""
    if names and count == len(names) + 1:
        return ("background", *names)
    return names if count == len(names) else ()


def best(model: GraphModel, names: Sequence[str], pixels: Any) -> list[dict[str, Any]]:
    """The likeliest classes, the likeliest first, each as a `name` and a `share` (0..1).

    `pixels` are of the size that the model takes, 4 bytes each; their values become -1..1.

    Raises
    ------
    HalfbyteError
        The model takes no picture, has other classes than `names`, or pixels are too few or many.
    """
    taken = model.inputs[0]
    form = layout(taken.shape)
    if form is None:
        raise HalfbyteError(f"{model.name}: expected a picture as input, found {taken.shape}")
    asked = {"height": form.height, "width": form.width, "scale": "signed"}
    [scores] = model.run({taken.name: picture_array(pixels, form, np.float32, asked)})
    if scores.size != len(names):
        raise HalfbyteError(f"{model.name}: {scores.size} classes, {len(names)} names")
    classes = describe("classes", scores, names)["best"]
    return [{"name": one["name"], "share": one["share"]} for one in classes]
