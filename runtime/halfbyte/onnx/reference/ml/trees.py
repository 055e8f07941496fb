"""Ensembles of decision trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import ProgramError, UnsupportedError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import fitting
from halfbyte.onnx.reference.activation import sigmoid_of
from halfbyte.onnx.reference.ml._common import floats, labels_of, ml, probit, rows_of, transformed

Array = npt.NDArray[Any]

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
MEMBER, LEAF = 6, 7
COMPARED: Sequence[Callable[[Array, Array], Array]] = (
    np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal,
)  # fmt: skip
POST = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
AGGREGATES = ["AVERAGE", "SUM", "MIN", "MAX"]


@dataclass(frozen=True)
class Trees:
    """Nodes of all trees in one list: the comparison of each, and its two next nodes.

    Attributes
    ----------
    modes : array [nodes]
        An index of `MODES`, `MEMBER` or `LEAF`.
    features, values, true, false, missing : array [nodes]
        Column, threshold, next nodes, and whether NaN takes the true branch.
    roots : array [trees]
    members : dict
        The values that take the true branch, for `MEMBER` nodes.
    """

    modes: Array
    features: Array
    values: Array
    true: Array
    false: Array
    missing: Array
    roots: Array
    members: dict[int, Array]

    def __post_init__(self) -> None:
        nodes = len(self.modes)
        inner = self.modes != LEAF
        for name, part in (("node", self.true[inner]), ("node", self.false[inner]),
                           ("root", self.roots)):  # fmt: skip
            if ((part < 0) | (part >= nodes)).any():
                raise ProgramError(f"a {name} outside of {nodes} nodes")

    def leaves(self, x: Array) -> Array:
        """The leaf of each tree for each row of x [n, d]: [n, trees]."""
        used = self.features[self.modes != LEAF]
        if ((used < 0) | (used >= x.shape[1])).any():
            raise ProgramError(f"a feature outside of {x.shape[1]} columns")
        at = np.broadcast_to(self.roots, fitting((len(x), len(self.roots)), 8)).copy()
        rows = np.broadcast_to(np.arange(len(x))[:, None], at.shape)
        for _ in range(len(self.modes) + 1):
            moving = self.modes[at] != LEAF
            if not moving.any():
                return at
            nodes = at[moving]
            numbers = x[rows[moving], self.features[nodes]]
            taken = self._taken(numbers, nodes)
            at[moving] = np.where(taken, self.true[nodes], self.false[nodes])
        raise ProgramError("a tree that leads back to itself")

    def _taken(self, numbers: Array, nodes: Array) -> Array:
        """Whether each number takes its node's true branch."""
        taken = np.zeros(len(nodes), np.bool_)
        modes, values = self.modes[nodes], self.values[nodes]
        for mode, compare in enumerate(COMPARED):
            chosen = modes == mode
            taken[chosen] = compare(numbers[chosen], values[chosen])
        for place in np.flatnonzero(modes == MEMBER):
            taken[place] = numbers[place] in self.members[int(nodes[place])]
        return np.asarray(taken | (np.isnan(numbers) & (self.missing[nodes] != 0)))


def _trees(
    treeids: Sequence[int], nodeids: Sequence[int], modes: Sequence[str], features: Sequence[int],
    values: Array, true: Sequence[int], false: Sequence[int], missing: Sequence[int] | None,
) -> tuple[Trees, dict[tuple[int, int], int]]:  # fmt: skip
    """Trees from the attributes nodes_*, and the index of each (tree, node)."""
    count = len(nodeids)
    lengths = {len(part) for part in (treeids, modes, features, values, true, false)}
    if lengths != {count} or (missing and len(missing) != count):
        raise ProgramError(f"nodes_* of lengths {sorted(lengths | {count})}, expected one length")
    places = {key: at for at, key in enumerate(zip(treeids, nodeids, strict=True))}
    known = {name: number for number, name in enumerate(MODES)} | {"LEAF": LEAF}
    try:
        numbers = np.array([known[mode] for mode in modes], np.int64)
        ways = [
            np.array([0 if mode == "LEAF" else places[tree, node]
                      for tree, node, mode in zip(treeids, nodes, modes, strict=True)], np.int64)
            for nodes in (true, false)
        ]  # fmt: skip
    except KeyError as error:
        raise ProgramError(f"no mode or node {error} of a tree") from None
    firsts: dict[int, int] = {}
    for at, tree in enumerate(treeids):
        firsts.setdefault(tree, at)
    trees = Trees(
        numbers, np.array(features, np.int64), values, ways[0], ways[1],
        np.array(missing or [0] * count, np.int64), np.array(list(firsts.values()), np.int64), {},
    )  # fmt: skip
    return trees, places


def _weighted(
    leaves: Array, places: dict[tuple[int, int], int], nodes: int, treeids: Sequence[int],
    nodeids: Sequence[int], targets: Sequence[int], weights: Array, count: int,
    aggregate: str = "SUM",
) -> Array:  # fmt: skip
    """Weights of leaves [n, trees] for each target: [n, count]."""
    if min(targets, default=0) < 0 or max(targets, default=0) >= count:
        raise ProgramError(f"a target outside of {count}")
    fitting((nodes, count), 8, "weights of leaves")
    fitting((*leaves.shape, count), 8, "weights of trees")
    table = np.zeros((nodes, count), weights.dtype)
    present = np.zeros((nodes, count), np.bool_)
    for tree, node, target, weight in zip(treeids, nodeids, targets, weights, strict=True):
        at = places.get((tree, node))
        if at is None:
            raise ProgramError(f"no node {node} of tree {tree}")
        table[at, target] += weight
        present[at, target] = True
    return aggregated(table[leaves], present[leaves], aggregate)


def aggregated(parts: Array, present: Array, aggregate: str) -> Array:
    """parts [n, trees, targets] aggregated over the trees that `present` selects; 0 without one."""
    if aggregate in ("SUM", "AVERAGE"):
        total = parts.sum(1)
        return np.asarray(total / parts.shape[1] if aggregate == "AVERAGE" else total)
    if aggregate not in ("MIN", "MAX"):
        raise ProgramError(f"aggregate_function {aggregate!r}, expected one of {AGGREGATES}")
    far, pick = (np.inf, np.min) if aggregate == "MIN" else (-np.inf, np.max)
    picked = pick(np.where(present, parts, far), axis=1)
    return np.asarray(np.where(present.any(1), picked, 0), parts.dtype)


def _values(floats: Sequence[float] | None, tensor: Array | None) -> Array:
    """Numbers of an attribute in float32, or of its `..._as_tensor` in float64."""
    return np.array(floats or (), np.float32) if tensor is None else tensor.reshape(-1)


def _rows(x: Array) -> Array:
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    return rows if rows.dtype.kind == "f" else rows.astype(np.float32)


def _targets(x: Array, *, n_targets: int = 1, **attributes: Any) -> Array:
    return floats(rows_of(x), n_targets)


def _targets_alike(x: Array, *, n_targets: int = 1, **attributes: Any) -> Array:
    return _shapes.blank((len(x), n_targets), x.dtype)


def _classified(
    x: Array, *, class_ids: Sequence[int], classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None, post_transform: str = "NONE",
    **attributes: Any,
) -> list[Array]:  # fmt: skip
    labels = labels_of(classlabels_int64s, classlabels_strings)
    single = len(labels) == 2 and len(set(class_ids)) == 1 and post_transform == "PROBIT"
    scores = floats(rows_of(x), 1 if single else len(labels))
    return [_shapes.blank((rows_of(x),), labels.dtype), scores]


@ml("TreeEnsembleRegressor", infer=_shapes.Rule(_targets))
def tree_ensemble_regressor(
    x: Array, *,
    nodes_treeids: Sequence[int], nodes_nodeids: Sequence[int], nodes_modes: Sequence[str],
    nodes_featureids: Sequence[int], nodes_truenodeids: Sequence[int],
    nodes_falsenodeids: Sequence[int], target_treeids: Sequence[int],
    target_nodeids: Sequence[int], target_ids: Sequence[int], n_targets: int,
    nodes_values: Sequence[float] | None = None, nodes_values_as_tensor: Array | None = None,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    nodes_hitrates: Sequence[float] | None = None, nodes_hitrates_as_tensor: Array | None = None,
    target_weights: Sequence[float] | None = None, target_weights_as_tensor: Array | None = None,
    base_values: Sequence[float] | None = None, base_values_as_tensor: Array | None = None,
    aggregate_function: str = "SUM", post_transform: str = "NONE",
) -> Array:  # fmt: skip
    """Weights of the leaves that x [n, d] reaches, over trees, plus base values: [n, targets].

    `..._as_tensor` are of version 3.
    """
    trees, places = _trees(
        nodes_treeids, nodes_nodeids, nodes_modes, nodes_featureids,
        _values(nodes_values, nodes_values_as_tensor), nodes_truenodeids, nodes_falsenodeids,
        nodes_missing_value_tracks_true,
    )  # fmt: skip
    weights = _values(target_weights, target_weights_as_tensor)
    scores = _weighted(
        trees.leaves(_rows(x)), places, len(nodes_modes), target_treeids, target_nodeids,
        target_ids, weights, n_targets, aggregate_function,
    )  # fmt: skip
    base = _values(base_values, base_values_as_tensor)
    scores = scores + base if len(base) else scores
    return transformed(scores.astype(np.float32), post_transform)


@ml("TreeEnsembleClassifier", infer=_shapes.Rule(_classified))
def tree_ensemble_classifier(
    x: Array, *,
    nodes_treeids: Sequence[int], nodes_nodeids: Sequence[int], nodes_modes: Sequence[str],
    nodes_featureids: Sequence[int], nodes_truenodeids: Sequence[int],
    nodes_falsenodeids: Sequence[int], class_treeids: Sequence[int],
    class_nodeids: Sequence[int], class_ids: Sequence[int],
    nodes_values: Sequence[float] | None = None, nodes_values_as_tensor: Array | None = None,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    nodes_hitrates: Sequence[float] | None = None, nodes_hitrates_as_tensor: Array | None = None,
    class_weights: Sequence[float] | None = None, class_weights_as_tensor: Array | None = None,
    base_values: Sequence[float] | None = None, base_values_as_tensor: Array | None = None,
    classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None, post_transform: str = "NONE",
) -> tuple[Array, Array]:  # fmt: skip
    """The label [n] with the highest sum of its leaves' weights, and the sums [n, classes].

    Two labels whose weights all belong to one class share one score s: [1 - s, s] and the second
    label above 1/2, where no weight is negative; otherwise [-s, s] and the second label above 0.
    LOGISTIC is applied to [-s, s].
    """
    trees, places = _trees(
        nodes_treeids, nodes_nodeids, nodes_modes, nodes_featureids,
        _values(nodes_values, nodes_values_as_tensor), nodes_truenodeids, nodes_falsenodeids,
        nodes_missing_value_tracks_true,
    )  # fmt: skip
    labels = labels_of(classlabels_int64s, classlabels_strings)
    weights = _values(class_weights, class_weights_as_tensor)
    base = _values(base_values, base_values_as_tensor)
    single = len(labels) == 2 and len(set(class_ids)) == 1
    ids = [0] * len(class_ids) if single else class_ids
    scores = _weighted(
        trees.leaves(_rows(x)), places, len(nodes_modes), class_treeids, class_nodeids, ids,
        weights, 1 if single else len(labels),
    )  # fmt: skip
    if not single:
        scores = (scores + base if len(base) else scores).astype(np.float32)
        return labels[scores.argmax(1)], transformed(scores, post_transform)
    scores = (scores + base[-1] if len(base) else scores).astype(np.float32)
    positive = bool((weights >= 0).all())
    best = (scores[:, 0] > (0.5 if positive else 0)).astype(np.int64)
    if post_transform == "PROBIT":
        return labels[best], probit(scores)
    if post_transform == "LOGISTIC":
        return labels[best], sigmoid_of(np.concatenate([-scores, scores], axis=1))
    first = 1 - scores if positive else -scores
    return labels[best], np.concatenate([first, scores], axis=1)


@ml("TreeEnsemble", since=5, infer=_shapes.Rule(_targets_alike))
def tree_ensemble(
    x: Array, *,
    tree_roots: Sequence[int], nodes_modes: Array, nodes_featureids: Sequence[int],
    nodes_splits: Array, nodes_truenodeids: Sequence[int], nodes_falsenodeids: Sequence[int],
    nodes_trueleafs: Sequence[int], nodes_falseleafs: Sequence[int],
    leaf_targetids: Sequence[int], leaf_weights: Array, n_targets: int = 1,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    nodes_hitrates: Array | None = None, membership_values: Array | None = None,
    aggregate_function: int = 1, post_transform: int = 0,
) -> Array:  # fmt: skip
    """Weights of the leaves that x [n, d] reaches, over trees: [n, targets] in x's type."""
    nodes, leaves = len(nodes_modes), len(leaf_weights)
    if not 0 <= post_transform < len(POST) or not 0 <= aggregate_function < len(AGGREGATES):
        raise UnsupportedError(f"post_transform {post_transform}, aggregate {aggregate_function}")

    def ways(ids: Sequence[int], leafs: Sequence[int]) -> Array:
        places, are_leaves = np.array(ids, np.int64), np.array(leafs, np.bool_)
        sizes = np.where(are_leaves, leaves, nodes)
        if places.shape != (nodes,) or ((places < 0) | (places >= sizes)).any():
            raise ProgramError(f"nodes_*nodeids beyond {nodes} nodes and {leaves} leaves")
        return places + np.where(are_leaves, nodes, 0)

    def longer(values: Any, dtype: Any) -> Array:
        return np.concatenate([np.asarray(values, dtype), np.zeros(leaves, dtype)])

    modes = np.concatenate([nodes_modes.astype(np.int64), np.full(leaves, LEAF)])
    if modes[:nodes].max(initial=0) > MEMBER:
        raise ProgramError(f"mode {modes[:nodes].max()}, expected 0 to {MEMBER}")
    trees = Trees(
        modes, longer(nodes_featureids, np.int64), longer(nodes_splits, nodes_splits.dtype),
        longer(ways(nodes_truenodeids, nodes_trueleafs), np.int64),
        longer(ways(nodes_falsenodeids, nodes_falseleafs), np.int64),
        longer(nodes_missing_value_tracks_true or [0] * nodes, np.int64),
        np.array(tree_roots, np.int64), _members(modes, membership_values),
    )  # fmt: skip
    reached = trees.leaves(x) - nodes
    targets = np.array(leaf_targetids, np.int64)[reached]
    fitting((*reached.shape, n_targets), 8, "weights of trees")
    present = targets[..., None] == np.arange(n_targets)
    parts = np.where(present, leaf_weights[reached][..., None], leaf_weights.dtype.type(0))
    scores = aggregated(parts, present, AGGREGATES[aggregate_function])
    return transformed(scores.astype(x.dtype), POST[post_transform])


def _members(modes: Array, values: Array | None) -> dict[int, Array]:
    """Sets of MEMBER nodes in their order, separated by NaN."""
    nodes = np.flatnonzero(modes == MEMBER)
    if not len(nodes):
        return {}
    listed = np.zeros(0) if values is None else values.reshape(-1)
    ends = np.flatnonzero(np.isnan(listed))
    if len(ends) not in (len(nodes) - 1, len(nodes)):
        raise ProgramError(f"{len(ends)} sets of members, expected {len(nodes)}")
    sets = [part[~np.isnan(part)] for part in np.split(listed, ends)]
    return dict(zip(map(int, nodes), sets, strict=False))
