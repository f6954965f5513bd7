"""Builds the description of a head of CenterNet."""

from object_detection.meta_architectures.center_net.tasks.task import Head
from object_detection.protos import center_net_pb2


def build_head(
    channels: int,
    params: center_net_pb2.CenterNet.PredictionHeadParams | None = None,
    bias: float = 0.0,
) -> Head:
    """Builds the description of a head; without `params` it has one 3x3 convolution of 256.

    Args:
      channels: of its result.
      params: its convolutions.
      bias: initial bias of the last one.
    """
    params = params or center_net_pb2.CenterNet.PredictionHeadParams()
    return Head(
        channels,
        filters=tuple(params.num_filters) or (256,),
        kernel_sizes=tuple(params.kernel_sizes) or (3,),
        bias=bias,
    )
