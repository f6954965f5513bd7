"""Fields of a model that are set, but that have no effect because of other fields.

Errors of the builders of those components of Faster R-CNN that are cheap to build.

What a Faster R-CNN, Mask R-CNN or R-FCN needs on a TPU beyond the rules for all families.
"""

from collections.abc import Iterator

from object_detection.config import findings, warnings
from object_detection.config.findings import Finding
from object_detection.config.walk import among, is_set
from object_detection.meta_architectures.faster_rcnn import rules
from object_detection.meta_architectures.faster_rcnn import rules as model_rules
from object_detection.meta_architectures.faster_rcnn.rules import ROOT
from object_detection.meta_architectures.tracing import problems
from object_detection.protos.faster_rcnn_pb2 import FasterRcnn, RoiAlign
from object_detection.protos.hyperparams_pb2 import Hyperparams
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

_HEAD = 'second_stage_box_predictor.mask_rcnn_box_predictor'
_NMS = 'second_stage_post_processing.batch_non_max_suppression'
_CROPS = (
    'initial_crop_size',
    'maxpool_kernel_size',
    'maxpool_stride',
    'use_matmul_crop_and_resize',
    'roi_align',
)
_SAMPLE = ('second_stage_batch_size', 'second_stage_balance_fraction')
_SECOND_STAGE = (
    *_CROPS,
    'second_stage_box_predictor',
    *_SAMPLE,
    'second_stage_post_processing',
    'second_stage_localization_loss_weight',
    'second_stage_classification_loss_weight',
    'second_stage_classification_loss',
    'second_stage_add_gt_as_proposals',
    'second_stage_fg_iou_threshold',
    'second_stage_bg_iou_threshold_hi',
    'second_stage_bg_iou_threshold_lo',
    'second_stage_box_coder',
    'second_stage_localization_loss',
    'second_stage_localization_normalizer',
    'hard_example_miner',
)
_MASKS = (
    'second_stage_mask_prediction_loss_weight',
    'groundtruth_mask_crop_size',
    'max_num_mask_rois',
    'pad_mask_rois',
    'mask_target_binarize_threshold',
    'mask_roi_align',
    'masks_from_crops',
    f'{_HEAD}.predict_instance_masks',
    f'{_HEAD}.conv_hyperparams',
    f'{_HEAD}.mask_height',
    f'{_HEAD}.mask_width',
    f'{_HEAD}.mask_prediction_conv_depth',
    f'{_HEAD}.mask_prediction_num_conv_layers',
    f'{_HEAD}.masks_are_class_agnostic',
    f'{_HEAD}.convolve_then_upsample_masks',
    f'{_HEAD}.mask_head_deconv',
)
_KEYPOINTS = (
    'second_stage_keypoint_loss_weight',
    'max_num_keypoint_rois',
    'pad_keypoint_rois',
    'keypoint_roi_align',
    f'{_HEAD}.keypoint_head',
)

_ONE_STAGE = 'number_of_stages: 1 ends with the proposals'
_NO_MASKS = 'masks are predicted by stage 3, and number_of_stages is 2'
_NO_KEYPOINTS = 'mask_rcnn_box_predictor.predict_keypoints is false'
_NO_CROPS = 'R-FCN crops score maps, to the size that rfcn_box_predictor says'
_ALIGNED = 'roi_align says how proposals are cropped'
_ACTIVATION = 'first_stage_activation says what follows the convolution of the proposal head'
_OUTPUTS = 'the class and box layers always have a bias, and no activation'
_OWN_LAYERS = 'box_head says the layers over the crops'
_NO_DROPOUT = 'use_dropout is false'
_NOT_STATIC = 'without use_static_shapes: true it is not read'
_MINED = 'hard_example_miner chooses among all proposals'
_OWN_FRAME = 'detections of Faster R-CNN are always relative to the true image'
_NEVER_COMBINED = 'one exact algorithm does it all, and drops boxes outside of the image'
_NO_CROWDS = 'train_input_reader.skip_crowd leaves crowds out'
_OWN_STRIDES = 'a feature pyramid has the strides of its levels'


def find(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str, str]]:
    """Yields triples of a top-level field, the path of a field without effect, and the reason.

    Only values that the config sets and that differ from the schema's default are reported. The
    top-level field is the part of the config whose use makes the caution apply.
    """
    config = pipeline.model.faster_rcnn
    for path, reason in _unread(config):
        yield 'model', f'{model_rules.ROOT}.{path}', reason
    if pipeline.train_input_reader.skip_crowd and config.first_stage_crowd_ioa_threshold:
        path = f'{model_rules.ROOT}.first_stage_crowd_ioa_threshold'
        yield 'train_input_reader', path, _NO_CROWDS


def _unread(config: FasterRcnn) -> Iterator[tuple[str, str]]:
    """Yields the paths of fields in the model's message, and why they have no effect."""
    rules = [_first_stage]
    rules += (
        [_one_stage] if config.number_of_stages == 1 else [_box_stage, _post_processing, _context]
    )
    for rule in rules:
        yield from rule(config)


def find_untrained(config: FasterRcnn) -> Iterator[str]:
    """Yields a sentence for each kind of layers that keeps its random weights in training."""
    extractor, path = config.feature_extractor, f'{model_rules.ROOT}.feature_extractor'
    if extractor.frozen_stages:
        yield (
            f'{path}.frozen_stages is {extractor.frozen_stages}, but there is no '
            'train_config.fine_tune_checkpoint: the frozen layers keep their random weights.'
        )
    # Nothing is said about the default of the schema if the config does not set it.
    elif extractor.HasField('batch_norm_trainable') and not extractor.batch_norm_trainable:
        yield (
            f'{path}.batch_norm_trainable is false, but there is no '
            'train_config.fine_tune_checkpoint: the batch norms of the backbone keep a mean of 0 '
            'and a variance of 1.'
        )


def find_advice(config: FasterRcnn) -> Iterator[str]:
    """Yields a sentence for each setting that makes detections of a new model worse."""
    if config.number_of_stages > 1:
        yield from warnings.scores(
            config.second_stage_post_processing,
            f'{model_rules.ROOT}.second_stage_post_processing',
            config.second_stage_classification_loss,
            f'{model_rules.ROOT}.second_stage_classification_loss',
        )
    if (
        config.number_of_stages == 3
        and model_rules.has_pyramid(config.feature_extractor)
        and not model_rules.predicts_masks_from_crops(config)
    ):
        yield (
            f'{model_rules.ROOT}.masks_from_crops is false: masks are predicted from the vector '
            'that classifies a box, as in the TensorFlow Object Detection API, whose checkpoints '
            'need it. For a new model set it to true: the crops of the feature pyramid tell where '
            'in the box something is.'
        )


def _first_stage(config: FasterRcnn) -> Iterator[tuple[str, str]]:
    layers = config.first_stage_box_predictor_conv_hyperparams
    # The default of the schema is not harmless here, since the head behaves differently.
    if layers.HasField('activation') and layers.activation != config.first_stage_activation:
        yield 'first_stage_box_predictor_conv_hyperparams.activation', _ACTIVATION
    if not config.use_static_shapes:
        static = ('use_static_balanced_label_sampler', 'use_static_shapes_for_eval')
        yield from among(config, static, _NOT_STATIC)
    extractor = config.feature_extractor
    # A pyramid does not have the default stride of 16 either.
    if model_rules.has_pyramid(extractor) and extractor.HasField('first_stage_features_stride'):
        yield 'feature_extractor.first_stage_features_stride', _OWN_STRIDES


def _one_stage(config: FasterRcnn) -> Iterator[tuple[str, str]]:
    # Fields in the message of the box predictor are reported with that message.
    fields = [*_SECOND_STAGE, *(path for path in (*_MASKS, *_KEYPOINTS) if _HEAD not in path)]
    yield from among(config, fields, _ONE_STAGE)


def _box_stage(config: FasterRcnn) -> Iterator[tuple[str, str]]:
    has_layers = is_set(config, f'{_HEAD}.box_head')
    if config.number_of_stages == 2:
        # The same message configures the convolutions of box_head and of keypoints.
        has_convs = has_layers or model_rules.predicts_keypoints(config)
        used = {f'{_HEAD}.conv_hyperparams'} if has_convs else set()
        yield from among(config, [path for path in _MASKS if path not in used], _NO_MASKS)
    if not model_rules.predicts_keypoints(config):
        yield from among(config, _KEYPOINTS, _NO_KEYPOINTS)
    if model_rules.is_rfcn(config):
        yield from among(config, _CROPS, _NO_CROPS)
    elif config.HasField('roi_align'):
        yield from among(config, ['initial_crop_size'], _ALIGNED)
    if has_layers:
        yield from among(config, ['feature_extractor.box_head_depth'], _OWN_LAYERS)
    else:
        yield from _outputs(config)
    path = f'{_HEAD}.dropout_keep_probability'
    drops = config.second_stage_box_predictor.mask_rcnn_box_predictor.use_dropout
    if not drops and is_set(config, path, 1.0):
        yield path, _NO_DROPOUT
    if config.HasField('hard_example_miner'):
        yield from among(config, _SAMPLE, _MINED)
    yield from warnings.miner(config, 'hard_example_miner')


def _context(config: FasterRcnn) -> Iterator[tuple[str, str]]:
    for names, reason in rules.without_effect(config.context_config):
        yield from among(config, [f'{rules.FIELD}.{name}' for name in names], reason)


def _outputs(config: FasterRcnn) -> Iterator[tuple[str, str]]:
    """Yields the options of the class and box layers that these do not use."""
    if is_set(config, f'{_HEAD}.fc_hyperparams.activation', Hyperparams.NONE):
        yield f'{_HEAD}.fc_hyperparams.activation', _OUTPUTS
    yield from among(config, [f'{_HEAD}.fc_hyperparams.force_use_bias'], _OUTPUTS)


def _post_processing(config: FasterRcnn) -> Iterator[tuple[str, str]]:
    yield from among(config, [f'{_NMS}.change_coordinate_frame'], _OWN_FRAME)
    yield from among(config, [f'{_NMS}.use_combined_nms'], _NEVER_COMBINED)
    yield from warnings.suppression(config, 'second_stage_post_processing')


def check(config: FasterRcnn) -> Iterator[str]:
    """Yields one sentence per problem; loads TensorFlow."""
    from object_detection.builders import anchor_generator_builder, image_resizer_builder
    from object_detection.meta_architectures.faster_rcnn import build

    yield from problems(image_resizer_builder.build, config.image_resizer, f'{ROOT}.image_resizer')
    path, extractor = f'{ROOT}.feature_extractor', config.feature_extractor
    yield from problems(build.check_extractor, extractor, path)
    path, anchors = f'{ROOT}.first_stage_anchor_generator', config.first_stage_anchor_generator
    yield from problems(anchor_generator_builder.build, anchors, path)
    yield from problems(build.check_rpn, config, ROOT)
    if config.number_of_stages > 1:
        yield from _second_stage(config)


def _second_stage(config: FasterRcnn) -> Iterator[str]:
    from object_detection.builders import box_predictor_builder, post_processing_builder
    from object_detection.meta_architectures.faster_rcnn import build_second_stage

    path, suppression = f'{ROOT}.second_stage_post_processing', config.second_stage_post_processing
    yield from problems(post_processing_builder.build, suppression, path)
    yield from _losses(config)
    yield from problems(build_second_stage.check, config, ROOT)
    path, predictor = f'{ROOT}.second_stage_box_predictor', config.second_stage_box_predictor
    yield from problems(box_predictor_builder.build, predictor, path, config.num_classes)
    head = predictor.mask_rcnn_box_predictor
    if head.HasField('box_head'):
        path = f'{path}.mask_rcnn_box_predictor.box_head'
        yield from problems(box_predictor_builder.build_box_classifier, head, path)
    if rules.predicts_keypoints(config):
        path = f'{ROOT}.second_stage_box_predictor.mask_rcnn_box_predictor.keypoint_head'
        yield from problems(box_predictor_builder.build_keypoint_head, head, path)
        yield from problems(build_second_stage.keypoints_of_classes, config, path)


def _losses(config: FasterRcnn) -> Iterator[str]:
    from object_detection.builders import losses_builder

    loss, path = config.second_stage_classification_loss, f'{ROOT}.second_stage_classification_loss'
    yield from problems(losses_builder.build_second_stage_classification, loss, path)
    if config.HasField('hard_example_miner'):
        yield from problems(
            losses_builder.build_hard_example_miner,
            config.hard_example_miner,
            f'{ROOT}.hard_example_miner',
            loss,
            config.second_stage_classification_loss_weight,
            config.second_stage_localization_loss_weight,
        )


_STATIC = (
    'The training step of this program has fixed shapes without it; the TensorFlow Object '
    'Detection API needs it, and so does use_static_balanced_label_sampler.'
)
_SAMPLER = (
    'The samplers of the TensorFlow Object Detection API for TPUs need it; with it, other rows '
    'make up for missing samples, as in the published recipes for TPUs.'
)
_GATHER = 'Targets are gathered row by row; a product of matrices is faster on a TPU.'
_TPU_CROPS = 'Regions are cropped by index; products of matrices are faster on a TPU.'
_MINER = (
    'It suppresses overlapping boxes of every image in every step, one after the other, and the '
    'TensorFlow Object Detection API has no such program for TPUs. Without it, '
    'second_stage_batch_size and second_stage_balance_fraction draw a sample.'
)


def find_for_tpu(pipeline: TrainEvalPipelineConfig) -> Iterator[Finding]:
    """Yields findings about the message of the model; see `ModelFamily.tpu`."""
    config = pipeline.model.faster_rcnn
    yield from findings.of_flag(config, rules.ROOT, 'use_static_shapes', _STATIC)
    yield from findings.of_flag(config, rules.ROOT, 'use_static_balanced_label_sampler', _SAMPLER)
    yield from findings.of_flag(config, rules.ROOT, 'use_matmul_gather_in_matcher', _GATHER)
    if config.number_of_stages == 1:
        return
    if config.HasField('hard_example_miner'):
        yield Finding(
            f'{rules.ROOT}.hard_example_miner',
            findings.found(config, 'hard_example_miner'),
            _MINER,
            '',
            is_obstacle=True,
        )
    if not rules.is_rfcn(config):
        yield from _crops(config)


def _crops(config: FasterRcnn) -> Iterator[Finding]:
    """Yields a finding if crops of boxes or masks are not products of matrices."""
    aligned = {'roi_align', 'mask_roi_align'}
    chosen = [getattr(config, name).impl for name in sorted(aligned) if config.HasField(name)]
    all_chosen = chosen and all(impl == RoiAlign.MATMUL for impl in chosen)
    if not all_chosen:
        yield from findings.of_flag(config, rules.ROOT, 'use_matmul_crop_and_resize', _TPU_CROPS)
