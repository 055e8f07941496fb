"""Allowed differences: where ONNX Runtime deviates from ONNX, is stricter, or ONNX is unspecific.

Each is (pattern of a case and its changes, pattern of the difference, reason). "accepts" means that
the definition gives a result where ONNX Runtime refuses (with its message); "refuses" the opposite.
"""

Exclusion = tuple[str, str, str]

EXCLUSIONS: list[Exclusion] = [
    ("", "accepts: .*NOT_IMPLEMENTED", "it has no kernel for these types"),
    ("", "accepts: .*(Type Error|bound to different types)",
     "types of other versions of the operator, or that its function's body does not take"),
    ("microsoft.SimplifiedLayerNormalization", "not a registered", "it is in ONNX's domain there"),
    ("MultiHeadAttention-17-one", "accepts", "one tensor for all three is for GPUs"),
    ("", "accepts: .*(Unable to handle object|narrowing_error)", "a limit of its interface"),
    # axes, sizes, flags
    ("", "refuses: .*name one twice", "it ignores axes that are named twice"),
    ("(keepdims|ceil_mode|is_causal|noop_with_empty_axes|count_include_pad|allowzero|transA|transB"
     "|unidirectional|channels_last) = ", "",
     "flags are 0 or 1; other numbers are unspecified"),
    ("scalar|rank", "accepts: .*(axes|Axes|squeeze.h|reduction_ops|unsqueeze.h|split.cc|reshape.h)",
     "an axis or a size as a scalar, as in ONNX's own tests"),
    ("Squeeze-17.*x1 left out", "accepts", "an input that is named '' counts as left out"),
    (r"axes = \[\]", "", "an empty list of axes, or none given"),
    (r"Reduce\w+-\d+.*x0 (scalar|rank|one axis)", "refuses", "axes of a scalar"),
    (r"Reduce\w+-18.*x0 size \d+ = 0", "shape",
     "it ignores axes that are an input where there are no elements"),
    (r"Reduce\w+-\d+.*x0 size \d+ = 0", r"refuses: .*axis -?\d+ of",
     "it does not check axes where there are no elements"),
    (r"ReduceMean-\d+.*x0 size \d+ = 0", "values",
     "by ONNX, the mean of no elements is undefined: NaN here, which is 0 / 0, and 0 there"),
    ("Softmax axis", "refuses", "it truncates axes to 32 bits"),
    ("Softmax-11|attention-axis-11", "accepts: .*'axis' must be",
     "after the last axis there are single numbers"),
    ("Slice.*= (9223372036854775807|2147483647|2147483648)", "shape|values",
     "it takes the largest number for the end, backwards too"),
    ("Split-18", "", "num_outputs need not be the number of outputs, nor may a part be empty"),
    ("Concat", "refuses: .*must match exactly", "parts without elements have any shape"),
    ("Expand.*x1 rank", "refuses", "a shape may be a matrix"),
    # windows
    ("Pool", "accepts: .*pool_attributes", "padding is smaller than the kernel"),
    ("Pool", "refuses: .*larger than the input", "results without elements"),
    ("Pool|Conv", "accepts: .*incorrect size", "an empty kernel_shape counts as left out"),
    ("FusedConv", "accepts: .*sum shape must match", "fused sums may be broadcast"),
    ("FusedConv|SkipL|SkipS", "refuses|shape", "it does not check shapes of sums"),
    ("FusedConv", "accepts: .*fused_conv.cc", "parameters have defaults"),
    (r"Squeeze-17.*x1 size 0 = 0", "shape", "no axes at all"),
    (r"QLinearGlobalAveragePool.*size [23] = 0", "accepts", "images without elements"),
    (r"DequantizeLinear.*x0 size \d+ = 0", "accepts: .*zero_point",
     "a zero point of any shape that is broadcast to no elements"),
    # numbers without a defined meaning
    (r"Clip.*= (nan|inf|-1.0|1e\+30|0.0|1e-30)", "", "limits in the wrong order, or NaN"),
    (r"= (nan|inf|-1.0|0.0|1e\+30|1e-30)(;|$)", "accepts|values",
     "scales, factors and epsilons that are not positive numbers of a usual size"),
    ("Dropout", "accepts: .*dropout_op", "the ratio is ignored outside of training"),
    ("Dropout", "values", "drawn at random"),
    (r"Attention.*x[34] value|QAttention.*x5 value", "values", "masks are 0 or 1"),
    # equivalent ranks and shapes
    ("LayerNorm|Gelu", "accepts: .*(is expected to|have rank|have shape|same)", "ranks of 2 or 3"),
    ("LayerNormalization.*x2 size|fused-skip-onnx.*x3 size", "refuses", "a bias without elements"),
    ("QLinear|Quantize|QGemm|MatMulInteger", "accepts: .*(must be|a scalar|same shape|rank|shape)",
     "one element is a scalar in any rank"),
    ("(QLinear|QGemm).*left out", "", "a scale or zero point may be left out"),
    ("MatMulNBits", "accepts: .*(attribute-derived|bias shape)", "the same bytes in another shape"),
    ("MatMulNBits.*known or not|MatMulNBits.*computed", "values", "scales that are computed"),
    ("MatMulIntegerToFloat|DynamicQuantizeMatMul", "refuses", "a bias of any shape"),
    ("GatherBlockQuantized", "accepts", "data and scales of other shapes that fit"),
    ("Attention", "accepts: .*(is expected to|attention_helper|attention_param|shall have|mask)",
     "masks that are broadcast"),
    ("BatchNormalization.*one output more", "accepts", "statistics of versions 7 to 9"),
    ("RMSNorm", "accepts: .*Scale and", "scales that are broadcast"),
    ("Pad", "accepts: .*exceeds maximum", "an axis may be reflected more than once"),
    ("Einsum", "refuses: .*label", "it broadcasts a label of two sizes"),
    ("PRelu.*x0", "refuses: .*slope", "its result may be larger than x"),
    ("GroupNorm", "refuses: .*scale or bias", "its function takes vectors of any shape that fits"),
    ("GroupNorm", "accepts: .*reshape_helper", "images without elements"),
    ("ConvTranspose", "accepts: .*(dimension is|output_padding|output_shape)",
     "results without elements; more padding or other sizes than a convolution gives"),
    ("ConvTranspose.*strides = ", "shape|refuses: .*at most",
     "SAME with gaps between the windows: ONNX's sizes are D * stride"),
    ("Resize", "accepts: .*(ScalesValidation|ShapeInferenceError|one of scales)",
     "axes that it does not interpolate; an empty input counts as left out"),
    ("(Resize|Upsample).*rank", "refuses", "scales or sizes as a matrix"),
    ("Resize.*antialias.*type", "values", "it truncates integers of a cubic interpolation"),
]  # fmt: skip

# Where a fused graph differs from the graph before fusion.
OWN_EXCLUSIONS: list[Exclusion] = [
    ("attention.* = (inf|1e.30)", "values", "softmax of infinities, which are NaN or zeros"),
    ("QAttention.* = (inf|1e.30)", "values", "the same"),
    ("QAttention.*x2 type", "dtype", "a bias of another type than its scales'"),
    ("GroupNormalization-18.*type", "dtype", "types that version 18 does not mix"),
    ("Dropout.*True", "values", "drawn at random"),
]
