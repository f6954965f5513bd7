"""Configs of single-shot detectors for phones that fit a data set."""

from object_detection.config.reader import parse_pipeline
from object_detection.dataset_tools import starter_parts
from object_detection.dataset_tools.data_statistics import DataStatistics
from object_detection.dataset_tools.starter_parts import DEVICES, MOBILE, Starter
from object_detection.dataset_tools.starter_weights import Weights
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

# The model of the zoo, SSDLite with a feature pyramid on MobileNet v2. Batches are smaller than
# there, so the statistics of the norms follow them faster.
_HYPERPARAMS = """
conv_hyperparams {
  activation: RELU_6
  regularizer { l2_regularizer { weight: 0.00004 } }
  initializer { random_normal_initializer { stddev: 0.01 } }
  batch_norm { scale: true decay: 0.97 epsilon: 0.001 }
}
"""
_TEMPLATE = f"""
model {{
  ssd {{
    image_resizer {{
      keep_aspect_ratio_resizer {{}}
    }}
    feature_extractor {{
      type: 'ssd_mobilenet_v2_fpn_keras'
      use_depthwise: true
      fpn {{ additional_layer_depth: 128 }}
      {_HYPERPARAMS}
      override_base_feature_extractor_hyperparams: true
    }}
    box_coder {{
      faster_rcnn_box_coder {{ y_scale: 10 x_scale: 10 height_scale: 5 width_scale: 5 }}
    }}
    matcher {{
      argmax_matcher {{
        matched_threshold: 0.5
        unmatched_threshold: 0.5
        negatives_lower_than_unmatched: true
        force_match_for_each_row: true
        use_matmul_gather: true
      }}
    }}
    similarity_calculator {{ iou_similarity {{}} }}
    encode_background_as_zeros: true
    anchor_generator {{ multiscale_anchor_generator {{ scales_per_octave: 2 }} }}
    box_predictor {{
      weight_shared_convolutional_box_predictor {{
        depth: 128
        class_prediction_bias_init: -4.6
        num_layers_before_predictor: 4
        share_prediction_tower: true
        use_depthwise: true
        kernel_size: 3
        {_HYPERPARAMS}
      }}
    }}
    loss {{
      classification_loss {{ weighted_sigmoid_focal {{ alpha: 0.25 gamma: 2 }} }}
      localization_loss {{ weighted_smooth_l1 {{}} }}
      classification_weight: 1
      localization_weight: 1
    }}
    normalize_loss_by_num_matches: true
    normalize_loc_loss_by_codesize: true
    post_processing {{
      batch_non_max_suppression {{ score_threshold: 0.01 iou_threshold: 0.6 }}
      score_converter: SIGMOID
    }}
  }}
}}
train_config {{
  optimizer {{
    momentum_optimizer {{
      learning_rate {{ cosine_decay_learning_rate {{}} }}
      momentum_optimizer_value: 0.9
    }}
    use_moving_average: false
  }}
  gradient_clipping_by_norm: 10
  data_augmentation_options {{ random_horizontal_flip {{}} }}
  data_augmentation_options {{
    random_crop_image {{
      min_object_covered: 0
      min_aspect_ratio: 0.75
      max_aspect_ratio: 3
      min_area: 0.75
      overlap_thresh: 0
    }}
  }}
}}
"""
KIND = 'ssd'
_FINEST_LEVEL, _COARSEST_LEVEL = 3, 7


def template() -> TrainEvalPipelineConfig:
    """Returns a config without the values that depend on the data."""
    return parse_pipeline(_TEMPLATE, 'template')


def fit(starter: Starter, train: DataStatistics, weights: Weights | None) -> None:
    """Fits the model of the template to a data set.

    Args:
      starter: the config, made from `template`.
      train: the records.
      weights: weights of a MobileNet v2, or None.
    """
    model = starter.pipeline.model.ssd
    why = 'SSD on MobileNet v2 with a small feature pyramid (FPNLite), made for phones'
    if weights:
        why += f'; its backbone begins with the weights {weights.path}.'
    else:
        why += '; it trains from random weights.'
    if train.mask_type:
        why += ' It predicts boxes alone.'
    starter.explain_model('feature_extractor', why)
    longer = starter_parts.fit_image_size(starter, train, DEVICES[MOBILE])
    anchors = starter_parts.fit_anchors(
        train, longer, finest_level=_FINEST_LEVEL, coarsest_level=_COARSEST_LEVEL
    )
    generator = model.anchor_generator.multiscale_anchor_generator
    starter_parts.write_anchors(anchors, generator, model.feature_extractor.fpn)
    starter.explain_model('anchor_generator', anchors.reason)
    starter_parts.fit_detections(starter, train, 'post_processing')
