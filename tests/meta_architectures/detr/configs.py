"""Tiny detection transformers of each kind."""

from google.protobuf import text_format

from object_detection.protos.detr_pb2 import Detr

SIDE, NUM_CLASSES = 64, 3
_RT_DETR = """
num_classes: 3
image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
feature_extractor {
  resnet {
    embedding_size: 8 hidden_sizes: [8, 8, 16, 16] depths: [1, 1, 1, 1] is_bottleneck: false
  }
  levels: [3, 4, 5]
}
encoder { hybrid { width: 16 attended_maps: 2 num_heads: 2 hidden: 16 depth_multiplier: 0.34 } }
queries { count: 10 denoising: 6 }
decoder {
  width: 16 num_layers: 2 num_heads: 2 hidden: 16
  deformable_attention { points: 2 }
}
"""
_ONE_MAP = """
feature_extractor {
  resnet {
    embedding_size: 8 hidden_sizes: [8, 8, 16, 16] depths: [1, 1, 1, 1] is_bottleneck: false
    is_vd: false
  }
  levels: 3
}
"""
_COMMON = """
num_classes: 3
image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
"""
_DINOV2 = """
feature_extractor {
  dinov2 {
    hidden_size: 16 num_hidden_layers: 2 num_attention_heads: 2 patch_size: 8 image_size: 64
    num_windows: 2 window_blocks: 0 blocks: [1, 2]
  }
}
"""
_RF_DETR = """
encoder { projector { width: 16 num_blocks: 1 } }
queries { count: 10 boxes: SELECTED_AND_LEARNED learned_contents: true groups: 2 }
decoder {
  width: 16 num_layers: 2 num_heads: 2 hidden: 16 share_heads: true
  deformable_attention { points: 2 num_maps: 1 num_heads: 4 }
}
loss { classification: IOU_AWARE alpha: 0.25 }
"""
# Kind -> settings.
KINDS = {
    'rt_detr': _RT_DETR,
    'rt_detr_v2': _RT_DETR
    + """
decoder { deformable_attention { method: DISCRETE stores_point_scales: true num_maps: 4 } }
""",
    'd_fine': _RT_DETR
    + """
encoder { hybrid { block: ELAN } }
decoder {
  deformable_attention { stores_point_scales: true has_projections: false }
  fine_distributions { bins: 8 quality_hidden: 8 quality_top: 2 }
}
""",
    'rf_detr': _COMMON + _ONE_MAP + _RF_DETR,
    'detr': _COMMON
    + _ONE_MAP
    + """
encoder { transformer { width: 16 num_layers: 1 num_heads: 2 hidden: 16 dropout: 0 } }
queries { count: 10 boxes: NONE }
decoder { width: 16 num_layers: 2 num_heads: 2 hidden: 16 share_heads: true }
loss { classification: SOFTMAX class_cost: 1 }
""",
}
# The same for the network that RF-DETR has.
NETWORKS = {'rf_detr_dinov2': _COMMON + _DINOV2 + _RF_DETR}


def tiny(kind: str, *changes: str) -> Detr:
    """Returns the message of a tiny detector of `KINDS` or `NETWORKS`, with changes."""
    message = Detr()
    for text in ((KINDS | NETWORKS)[kind], *changes):
        text_format.Merge(text, message)
    return message
