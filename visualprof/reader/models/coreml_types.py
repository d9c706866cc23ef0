"""Numbers of Core ML: types of models, elements and layers, and fields of layers with weights."""

from __future__ import annotations


def _numbered(entries: str) -> dict[int, str]:
    """Return names by number, from `number:name` separated by blanks."""
    return {int(number): name for number, _, name in (entry.partition(":") for entry in entries.split())}


# Types of models without a graph, by the number of their field.
OTHER_TYPES = _numbered(
    """
    300:GLMRegressor 301:SupportVectorRegressor 302:TreeEnsembleRegressor 304:BayesianProbitRegressor
    400:GLMClassifier 401:SupportVectorClassifier 402:TreeEnsembleClassifier 404:KNearestNeighborsClassifier
    501:ItemSimilarityRecommender 555:CustomModel 556:LinkedModel 560:ClassConfidenceThresholding
    600:OneHotEncoder 601:Imputer 602:FeatureVectorizer 603:DictVectorizer 604:Scaler 606:CategoricalMapping
    607:Normalizer 609:ArrayFeatureExtractor 610:NonMaximumSuppression 900:Identity 2000:TextClassifier
    2001:WordTagger 2002:VisionFeaturePrint 2003:SoundAnalysisPreprocessing 2004:Gazetteer 2005:WordEmbedding
    2006:AudioFeaturePrint
    """
)
# Types of MIL.
DTYPES = _numbered(
    """
    1:bool 2:string 10:float16 11:float32 12:float64 13:bfloat16 21:int8 22:int16 23:int32 24:int64 25:int4
    31:uint8 32:uint16 33:uint32 34:uint64 35:uint4 36:uint2 37:uint1 38:uint6 39:uint3 40:float8_e4m3fn
    41:float8_e5m2
    """
)
FLOAT16 = 10
ARRAY_DTYPES = {65552: "float16", 65568: "float32", 65600: "float64", 131080: "int8", 131104: "int32"}
# Layers of neural networks: number of the field and type.
LAYER_TYPES = _numbered(
    """
    100:convolution 120:pooling 130:activation 140:innerProduct 150:embedding 160:batchnorm 165:mvn
    170:l2normalize 175:softmax 180:lrn 190:crop 200:padding 210:upsample 211:resizeBilinear 212:cropResize
    220:unary 230:add 231:multiply 240:average 245:scale 250:bias 260:max 261:min 270:dot 280:reduce
    290:loadConstant 300:reshape 301:flatten 310:permute 320:concat 330:split 340:sequenceRepeat
    345:reorganizeData 350:slice 400:simpleRecurrent 410:gru 420:uniDirectionalLSTM 430:biDirectionalLSTM
    500:custom 600:copy 605:branch 615:loop 620:loopBreak 625:loopContinue 635:rangeStatic 640:rangeDynamic
    660:clip 665:ceil 670:floor 680:sign 685:round 700:exp2 710:sin 715:cos 720:tan 730:asin 735:acos 740:atan
    750:sinh 755:cosh 760:tanh 770:asinh 775:acosh 780:atanh 790:erf 795:gelu 815:equal 820:notEqual
    825:lessThan 827:lessEqual 830:greaterThan 832:greaterEqual 840:logicalOr 845:logicalXor 850:logicalNot
    855:logicalAnd 865:modBroadcastable 870:minBroadcastable 875:maxBroadcastable 880:addBroadcastable
    885:powBroadcastable 890:divideBroadcastable 895:floorDivBroadcastable 900:multiplyBroadcastable
    905:subtractBroadcastable 920:tile 925:stack 930:gather 935:scatter 940:gatherND 945:scatterND
    950:softmaxND 952:gatherAlongAxis 954:scatterAlongAxis 960:reverse 965:reverseSeq 975:splitND 980:concatND
    985:transpose 995:sliceStatic 1000:sliceDynamic 1005:slidingWindows 1015:topK 1020:argMin 1025:argMax
    1040:embeddingND 1045:batchedMatmul 1065:getShape 1070:loadConstantND 1080:fillLike 1085:fillStatic
    1090:fillDynamic 1100:broadcastToLike 1105:broadcastToStatic 1110:broadcastToDynamic 1120:squeeze
    1125:expandDims 1130:flattenTo2D 1135:reshapeLike 1140:reshapeStatic 1145:reshapeDynamic
    1150:rankPreservingReshape 1155:constantPad 1170:randomNormalLike 1175:randomNormalStatic
    1180:randomNormalDynamic 1190:randomUniformLike 1195:randomUniformStatic 1200:randomUniformDynamic
    1210:randomBernoulliLike 1215:randomBernoulliStatic 1220:randomBernoulliDynamic
    1230:categoricalDistribution 1250:reduceL1 1255:reduceL2 1260:reduceMax 1265:reduceMin 1270:reduceSum
    1275:reduceProd 1280:reduceMean 1285:reduceLogSum 1290:reduceSumSquare 1295:reduceLogSumExp
    1313:whereNonZero 1315:matrixBandPart 1320:lowerTriangular 1325:upperTriangular 1330:whereBroadcastable
    1350:layerNormalization 1400:NonMaximumSuppression 1450:oneHot 1455:cumSum 1460:clampedReLU 1461:argSort
    1465:pooling3d 1466:globalPooling3d 1470:sliceBySize 1471:convolution3d
    """
)
BRANCH_LAYER, LOOP_LAYER, LSTM_LAYERS = 605, 615, (420, 430)
LSTM_WEIGHTS = (1, 2, 3, 4, 20, 21, 22, 23, 40, 41, 42, 43, 60, 61, 62)
# Fields with weights, by type of layer.
LAYER_WEIGHTS: dict[int, tuple[int, ...]] = {
    100: (90, 91),
    140: (20, 21),
    150: (20, 21),
    160: (15, 16, 17, 18),
    245: (2, 5),
    250: (2,),
    290: (2,),
    400: (30, 31, 32),
    410: (30, 31, 32, 50, 51, 52, 70, 71, 72),
    500: (20,),
    1040: (20, 21),
    1045: (8, 9),
    1070: (2,),
    1350: (3, 4),
    1471: (60, 61),
}
