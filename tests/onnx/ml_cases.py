"""Cases of ai.onnx.ml: random inputs by operator, with a fixed seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tests.onnx.contrib_cases import Array, Case, Random

NAN = float("nan")


def ml(operator: str, label: str, inputs: Sequence[Array], attributes: dict[str, Any],
       outputs: Sequence[str] = ("y",), **options: Any) -> Case:  # fmt: skip
    return Case(operator, label, inputs, attributes, outputs, domain="ai.onnx.ml", **options)


def texts(*values: str) -> Array:
    return np.array(values, object)


def feature_cases() -> Iterator[Case]:
    r = Random("features")
    x = r.f(4, 3)
    yield ml("ArrayFeatureExtractor", "columns", [x, np.array([2, 0])], {})
    yield ml("ArrayFeatureExtractor", "row", [x[0], np.array([1, 1])], {})
    yield ml("Binarizer", "threshold", [x], {"threshold": 0.2})
    yield ml("Scaler", "columns", [x], {"offset": [0.1, 0.2, 0.3], "scale": [2.0, 0.5, 1.0]})
    yield ml("Scaler", "one", [r.i64(0, 9, 4, 3)], {"offset": [0.5], "scale": [2.0]})
    for norm in ("MAX", "L1", "L2"):
        yield ml("Normalizer", norm, [np.abs(x)], {"norm": norm})
        yield ml("Normalizer", f"{norm} signed", [x], {"norm": norm})
        yield ml("Normalizer", f"{norm} zero", [np.zeros((2, 3), np.float32)], {"norm": norm})
    holes = np.where(x > 0.5, np.float32(NAN), x)
    yield ml("Imputer", "nan", [holes],
             {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": NAN})  # fmt: skip
    yield ml("Imputer", "whole", [r.i64(0, 3, 4, 3)],
             {"imputed_value_int64s": [7], "replaced_value_int64": 1})  # fmt: skip
    yield ml("OneHotEncoder", "numbers", [r.i64(0, 4, 2, 3)], {"cats_int64s": [3, 1, 2]})
    yield ml("OneHotEncoder", "strings", [texts("b", "a", "x")], {"cats_strings": ["a", "b"]})
    yield ml("FeatureVectorizer", "three", [x, r.f(4, 2), r.f(4, 1)],
             {"inputdimensions": [3, 2, 1]})  # fmt: skip


def label_cases() -> Iterator[Case]:
    words = texts("a", "c", "b", "?")
    name = "LabelEncoder"
    yield ml(name, "strings to numbers", [words],
             {"keys_strings": ["a", "b", "c"], "values_int64s": [3, 1, 2]})  # fmt: skip
    yield ml(
        name,
        "numbers to strings",
        [np.array([1, 5, 2])],
        {"keys_int64s": [1, 2], "values_strings": ["x", "y"], "default_string": "z"},
    )
    yield ml(
        name,
        "floats",
        [np.array([1, NAN, 2], np.float32)],
        {"keys_floats": [1.0, NAN], "values_floats": [0.5, 0.25], "default_float": -7.0},
    )
    mapping = {"cats_int64s": [4, 5, 6], "cats_strings": ["a", "b", "c"]}
    yield ml("CategoryMapper", "strings", [words], mapping)
    yield ml("CategoryMapper", "numbers", [np.array([6, 4, 9])], mapping)


def linear_cases() -> Iterator[Case]:
    r = Random("linear")
    x = r.f(6, 3)
    floats = lambda *shape: r.f(*shape).reshape(-1).tolist()  # noqa: E731
    yield ml("LinearRegressor", "targets", [x],
             {"coefficients": floats(2, 3), "intercepts": [0.1, 0.2], "targets": 2})  # fmt: skip
    both = ["label", "scores"]
    what = {"coefficients": floats(3, 3), "intercepts": [0.1, 0.2, -0.3]}
    for post in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
        yield ml("LinearRegressor", post, [x], what | {"targets": 3, "post_transform": post})
        yield ml("LinearClassifier", post, [x],
                 what | {"classlabels_ints": [5, 6, 7], "post_transform": post}, both)  # fmt: skip
    one = {"coefficients": floats(1, 3), "intercepts": [0.1]}
    for post in ("NONE", "LOGISTIC"):
        yield ml("LinearClassifier", f"one {post}", [x],
                 one | {"classlabels_strings": ["n", "y"], "post_transform": post},
                 both)  # fmt: skip


def support_cases() -> Iterator[Case]:
    r = Random("support")
    x = r.f(6, 3)
    floats = lambda *shape: r.f(*shape).reshape(-1).tolist()  # noqa: E731
    both = ["label", "scores"]
    for kind, parameters in (("LINEAR", [0.0, 0.0, 0.0]), ("POLY", [0.3, 1.0, 2.0]),
                             ("RBF", [0.4, 0.0, 0.0]), ("SIGMOID", [0.2, 0.1, 0.0])):  # fmt: skip
        machine = {
            "kernel_type": kind,
            "kernel_params": parameters,
            "support_vectors": floats(5, 3),
        }
        yield ml("SVMRegressor", kind, [x],
                 machine | {"n_supports": 5, "coefficients": floats(5), "rho": [0.2]})  # fmt: skip
        three = machine | {"vectors_per_class": [2, 2, 1], "coefficients": floats(2, 5),
                           "rho": [0.1, -0.2, 0.05], "classlabels_ints": [4, 5, 6]}  # fmt: skip
        yield ml("SVMClassifier", kind, [x], three, both)
        sure = {"prob_a": [-1.5, -1.0, -0.7], "prob_b": [0.1, 0.0, -0.1]}
        yield ml("SVMClassifier", f"{kind} sure", [x], three | sure, both, rtol=1e-2, atol=1e-2)
    yield ml("SVMRegressor", "one class", [x],
             {"kernel_type": "RBF", "kernel_params": [0.4, 0.0, 0.0], "n_supports": 5,
              "support_vectors": floats(5, 3), "coefficients": [0.4] * 5, "rho": [-0.6],
              "one_class": 1})  # fmt: skip
    yield ml(
        "SVMRegressor",
        "linear",
        [x],
        {"coefficients": floats(3), "rho": [0.2], "kernel_params": [0.0, 0.0, 0.0]},
    )
    two = {"kernel_type": "RBF", "kernel_params": [0.4, 0.0, 0.0], "vectors_per_class": [3, 2],
           "support_vectors": floats(5, 3), "coefficients": floats(1, 5), "rho": [-0.3],
           "classlabels_strings": ["n", "y"]}  # fmt: skip
    yield ml("SVMClassifier", "two", [x], two, both)
    yield ml("SVMClassifier", "two sure", [x], two | {"prob_a": [-1.5], "prob_b": [0.1]}, both,
             rtol=1e-2, atol=1e-2)  # fmt: skip
    yield ml("SVMClassifier", "linear", [x],
             {"coefficients": floats(3, 3), "rho": [0.1], "classlabels_ints": [1, 2, 3],
              "kernel_params": [0.0, 0.0, 0.0]},
             both)  # fmt: skip


def forest(label: str, weights: int) -> dict[str, Any]:
    """nodes_* of three full trees of depth 2 with all comparisons, and weights' ids by leaf."""
    r = Random(label)
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
    trees = range(3)
    inner = [modes[(3 * t + i) % 6] for t in trees for i in range(9)]
    nodes = {
        "nodes_treeids": [t for t in trees for _ in range(7)],
        "nodes_nodeids": list(range(7)) * 3,
        "nodes_modes": [m for t in trees for m in (*inner[3 * t : 3 * t + 3], *["LEAF"] * 4)],
        "nodes_featureids": r.i32(0, 3, 21).tolist(),
        "nodes_values": (r.i32(-2, 3, 21) / 2).tolist(),
        "nodes_truenodeids": [1, 3, 5, 0, 0, 0, 0] * 3,
        "nodes_falsenodeids": [2, 4, 6, 0, 0, 0, 0] * 3,
        "nodes_missing_value_tracks_true": [1, 0, 1, 0, 0, 0, 0] * 3,
    }
    leaves = [(t, n, w) for t in trees for n in range(3, 7) for w in range(weights)]
    return {"nodes": nodes, "leaves": list(zip(*leaves, strict=True)),
            "weights": r.f(len(leaves)).tolist()}  # fmt: skip


def tree_cases() -> Iterator[Case]:
    r = Random("trees")
    x = (r.i32(-3, 4, 30, 3) / 2).astype(np.float32)
    x[::7, 1] = NAN
    cases = forest("regression", 2)
    trees, nodes, ids = cases["leaves"]
    targets = {"target_treeids": trees, "target_nodeids": nodes, "target_ids": ids,
               "target_weights": cases["weights"], "n_targets": 2}  # fmt: skip
    for how in ("SUM", "AVERAGE", "MIN", "MAX"):
        yield ml("TreeEnsembleRegressor", how, [x],
                 cases["nodes"] | targets | {"aggregate_function": how})  # fmt: skip
    yield ml("TreeEnsembleRegressor", "base", [x],
             cases["nodes"] | targets | {"base_values": [0.5, -0.5],
                                        "post_transform": "LOGISTIC"})  # fmt: skip
    both = ["label", "scores"]
    cases = forest("classes", 3)
    trees, nodes, ids = cases["leaves"]
    classes = {"class_treeids": trees, "class_nodeids": nodes, "class_ids": ids,
               "class_weights": cases["weights"], "classlabels_int64s": [7, 8, 9]}  # fmt: skip
    for post in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
        yield ml("TreeEnsembleClassifier", post, [x],
                 cases["nodes"] | classes | {"post_transform": post}, both)  # fmt: skip
    yield ml("TreeEnsembleClassifier", "base", [x],
             cases["nodes"] | classes | {"base_values": [0.1, 0.2, -0.3]}, both)  # fmt: skip
    cases = forest("two classes", 1)
    trees, nodes, ids = cases["leaves"]
    for sign, weights in (("mixed", cases["weights"]),
                          ("positive", [abs(w) / 3 for w in cases["weights"]])):  # fmt: skip
        for post in ("NONE", "LOGISTIC"):
            two = {"class_treeids": trees, "class_nodeids": nodes, "class_ids": ids,
                   "class_weights": weights, "classlabels_strings": ["n", "y"],
                   "post_transform": post}  # fmt: skip
            yield ml("TreeEnsembleClassifier", f"two, {sign}, {post}", [x], cases["nodes"] | two,
                     both)  # fmt: skip


FAMILIES: Sequence[Callable[[], Iterator[Case]]] = (
    feature_cases, label_cases, linear_cases, support_cases, tree_cases,
)  # fmt: skip


def all_cases() -> list[Case]:
    return [case for family in FAMILIES for case in family()]
