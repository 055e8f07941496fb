"""The operators of each module of definitions; made by tools/make_operator_index.py.

Operators of other domains than ONNX's own are written as domain:name.
"""

OPERATORS = {
    "activation": (
        "Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Shrink Sigmoid "
        "Softplus Softsign SwiGLU Swish ThresholdedRelu"
    ),
    "attention": (
        "Attention CausalConvWithState LinearAttention RotaryEmbedding"
    ),
    "bitwise": (
        "BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor"
    ),
    "cast": (
        "BitCast Cast CastLike"
    ),
    "constant": (
        "Constant ConstantOfShape EyeLike Range"
    ),
    "contrib.activations": (
        "com.microsoft:BiasAdd com.microsoft:BiasGelu com.microsoft:BiasSoftmax "
        "com.microsoft:BiasSplitGelu com.microsoft:FastGelu com.microsoft:Gelu "
        "com.microsoft:GemmFastGelu com.microsoft:QuickGelu com.microsoft:ScaledSiLU"
    ),
    "contrib.attention": (
        "com.microsoft:Attention com.microsoft:GroupQueryAttention "
        "com.microsoft:MultiHeadAttention com.microsoft:QAttention "
        "com.microsoft:RotaryEmbedding"
    ),
    "contrib.fused": (
        "com.microsoft:ConvTransposeWithDynamicPads com.microsoft:FusedConv "
        "com.microsoft:FusedGemm com.microsoft:FusedMatMul com.microsoft:FusedMatMulActivation "
        "com.microsoft:NhwcConv com.microsoft:NhwcFusedConv com.microsoft:NhwcMaxPool "
        "com.microsoft:TransposeMatMul"
    ),
    "contrib.matmul": (
        "com.microsoft:DynamicQuantizeMatMul com.microsoft:GatherBlockQuantized "
        "com.microsoft:MatMulBnb4 com.microsoft:MatMulInteger16 "
        "com.microsoft:MatMulIntegerToFloat com.microsoft:MatMulNBits"
    ),
    "contrib.norms": (
        "SimplifiedLayerNormalization com.microsoft:EmbedLayerNormalization "
        "com.microsoft:GatedRMSNorm com.microsoft:GroupNorm "
        "com.microsoft:QEmbedLayerNormalization com.microsoft:SimplifiedLayerNormalization "
        "com.microsoft:SkipGroupNorm com.microsoft:SkipLayerNormalization "
        "com.microsoft:SkipSimplifiedLayerNormalization"
    ),
    "contrib.older": (
        "Affine Crop ImageScaler ParametricSoftplus Scale ScaledTanh"
    ),
    "contrib.quantized": (
        "com.microsoft:DequantizeLinear com.microsoft:DynamicQuantizeLSTM "
        "com.microsoft:MulInteger com.microsoft:QGemm com.microsoft:QLinearAdd "
        "com.microsoft:QLinearAveragePool com.microsoft:QLinearConcat com.microsoft:QLinearConv "
        "com.microsoft:QLinearGlobalAveragePool com.microsoft:QLinearLeakyRelu "
        "com.microsoft:QLinearMul com.microsoft:QLinearReduceMean com.microsoft:QLinearSigmoid "
        "com.microsoft:QLinearSoftmax com.microsoft:QLinearWhere com.microsoft:QuantizeLinear "
        "com.microsoft:ReduceSumInteger"
    ),
    "contrib.tensor_ops": (
        "com.microsoft:BiasDropout com.microsoft:CDist com.microsoft:ComplexMul "
        "com.microsoft:ComplexMulConj com.microsoft:CropAndResize com.microsoft:ExpandDims "
        "com.microsoft:GatedAdd com.microsoft:GatherND com.microsoft:GridSample "
        "com.microsoft:Inverse com.microsoft:Irfft com.microsoft:IsAllFinite "
        "com.microsoft:NGramRepeatBlock com.microsoft:Pad com.microsoft:Range "
        "com.microsoft:Rfft com.microsoft:TorchEmbedding com.microsoft:Trilu "
        "com.microsoft:UnfoldTensor com.microsoft:Unique"
    ),
    "control_flow": (
        "If Loop Scan"
    ),
    "conv": (
        "Conv ConvInteger QLinearConv"
    ),
    "conv_transpose": (
        "Col2Im ConvTranspose"
    ),
    "detection": (
        "MaxRoiPool NonMaxSuppression RoiAlign"
    ),
    "gather": (
        "Gather GatherElements GatherND"
    ),
    "image": (
        "ImageDecoder"
    ),
    "interpolation": (
        "AffineGrid DeformConv GridSample"
    ),
    "linear": (
        "Det Einsum Gemm MatMul"
    ),
    "logic": (
        "And Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Not Or Xor"
    ),
    "loss": (
        "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss"
    ),
    "math": (
        "Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Clip Cos Cosh Div Erf Exp Floor Log Max "
        "Mean Min Mod Mul Neg Pow Reciprocal Round Sign Sin Sinh Sqrt Sub Sum Tan Tanh"
    ),
    "ml.features": (
        "ai.onnx.ml:ArrayFeatureExtractor ai.onnx.ml:Binarizer ai.onnx.ml:DictVectorizer "
        "ai.onnx.ml:FeatureVectorizer ai.onnx.ml:Imputer ai.onnx.ml:Normalizer "
        "ai.onnx.ml:OneHotEncoder ai.onnx.ml:Scaler ai.onnx.ml:ZipMap"
    ),
    "ml.labels": (
        "ai.onnx.ml:CastMap ai.onnx.ml:CategoryMapper ai.onnx.ml:LabelEncoder"
    ),
    "ml.linear_models": (
        "ai.onnx.ml:LinearClassifier ai.onnx.ml:LinearRegressor"
    ),
    "ml.support": (
        "ai.onnx.ml:SVMClassifier ai.onnx.ml:SVMRegressor"
    ),
    "ml.trees": (
        "ai.onnx.ml:TreeEnsemble ai.onnx.ml:TreeEnsembleClassifier "
        "ai.onnx.ml:TreeEnsembleRegressor"
    ),
    "normalization": (
        "BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization "
        "LpNormalization MeanVarianceNormalization RMSNormalization"
    ),
    "own": (
        "ai.halfbyte:Attention ai.halfbyte:LayerNormalization ai.halfbyte:Linear "
        "ai.halfbyte:QuantizeDequantize ai.halfbyte:RMSNormalization ai.halfbyte:ScaledKernel "
        "ai.halfbyte:SkipLayerNormalization"
    ),
    "pad": (
        "CenterCropPad Pad"
    ),
    "pooling": (
        "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxUnpool"
    ),
    "preview": (
        "ai.onnx.preview.training:Adagrad ai.onnx.preview.training:Adam "
        "ai.onnx.preview.training:Momentum ai.onnx.preview:FlexAttention"
    ),
    "quantization": (
        "DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearMatMul QuantizeLinear"
    ),
    "random": (
        "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform "
        "RandomUniformLike"
    ),
    "rearrange": (
        "DepthToSpace ReverseSequence SpaceToDepth Trilu"
    ),
    "reduction": (
        "ArgMax ArgMin CumProd CumSum ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax "
        "ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
    ),
    "resize": (
        "Resize Upsample"
    ),
    "rnn": (
        "GRU LSTM RNN"
    ),
    "scatter": (
        "Scatter ScatterElements ScatterND TensorScatter"
    ),
    "selection": (
        "Compress NonZero OneHot TopK Unique Where"
    ),
    "sequence": (
        "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt "
        "SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
        "SequenceMap SplitToSequence"
    ),
    "shape": (
        "Flatten Identity Reshape Shape Size Squeeze Transpose Unsqueeze"
    ),
    "signal": (
        "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT"
    ),
    "slicing": (
        "Concat Expand Slice Split Tile"
    ),
    "softmax": (
        "Hardmax LogSoftmax Softmax"
    ),
    "text": (
        "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer"
    ),
}  # fmt: skip
