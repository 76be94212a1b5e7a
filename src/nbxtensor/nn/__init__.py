"""What models need beyond the Python Array API standard."""

from nbxtensor.ops.conv import conv as conv
from nbxtensor.ops.embedding import embedding as embedding
from nbxtensor.ops.erf import erf as erf
from nbxtensor.ops.gelu import gelu as gelu
from nbxtensor.ops.layer_norm import layer_norm as layer_norm
from nbxtensor.ops.layer_norm import rms_norm as rms_norm
from nbxtensor.ops.linear import linear as linear
from nbxtensor.ops.pool import avg_pool as avg_pool
from nbxtensor.ops.pool import global_avg_pool as global_avg_pool
from nbxtensor.ops.pool import global_max_pool as global_max_pool
from nbxtensor.ops.pool import max_pool as max_pool
from nbxtensor.ops.relu import elu as elu
from nbxtensor.ops.relu import hard_sigmoid as hard_sigmoid
from nbxtensor.ops.relu import leaky_relu as leaky_relu
from nbxtensor.ops.relu import relu as relu
from nbxtensor.ops.rsqrt import rsqrt as rsqrt
from nbxtensor.ops.sigmoid import sigmoid as sigmoid
from nbxtensor.ops.silu import silu as silu
from nbxtensor.ops.softmax import log_softmax as log_softmax
from nbxtensor.ops.softmax import softmax as softmax
from nbxtensor.ops.softplus import softplus as softplus
from nbxtensor.ops.take import gather_nd as gather_nd
