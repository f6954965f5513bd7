"""Fields of a single-shot detector without an effect, and settings that are rarely meant.

Errors of the builders of those components of a single-shot detector that are cheap to build.

What a single-shot detector needs on a TPU beyond the rules for all families.
"""

from collections.abc import Iterator

from object_detection.config import findings, warnings
from object_detection.config.findings import Finding
from object_detection.config.walk import among, is_set
from object_detection.meta_architectures.ssd.rules import ROOT, padding_multiple
from object_detection.meta_architectures.tracing import problems
from object_detection.protos.image_resizer_pb2 import ImageResizer
from object_detection.protos.losses_pb2 import Loss
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.post_processing_pb2 import PostProcessing
from object_detection.protos.ssd_pb2 import Ssd

_NMS = 'post_processing.batch_non_max_suppression'
_ANCHORS = 'anchor_generator.ssd_anchor_generator'
_CONVERTED = f'{ROOT}.box_predictor.weight_shared_convolutional_box_predictor.score_converter'
_EXPECTED = ('loss.min_num_negative_samples', 'loss.desired_negative_sampling_ratio')
_NO_CONFIDENCES = 'without use_confidences_as_targets: true it is not read'
_NO_EXPECTATION = 'without loss.expected_loss_weights it is not read'
_NO_DROPOUT = 'use_dropout is false'
_NO_DEPTH = 'min_depth and max_depth are 0, which leaves these layers out'
_NO_LAYERS = 'num_layers_before_predictor is 0'
_DEPTHWISE = 'with use_depthwise the classes begin without a bias'
_DEPTHWISE_PENALTY = 'as in the reference, no layer of a single-shot detector reads it'
_NO_THRESHOLDS = 'ignore_thresholds is true'
_OWN_SCALES = 'scales says the scale of each layer'


def find(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str, str]]:
    """Yields triples of a top-level field, the path of a field without effect, and the reason."""
    for path, reason in _unread(pipeline.model.ssd):
        yield 'model', f'{ROOT}.{path}', reason


def _unread(config: Ssd) -> Iterator[tuple[str, str]]:
    """Yields the paths of fields in the model's message, and why they have no effect."""
    if not config.use_confidences_as_targets:
        yield from among(config, ['implicit_example_weight'], _NO_CONFIDENCES)
    if config.loss.expected_loss_weights == Loss.NONE:
        yield from among(config, _EXPECTED, _NO_EXPECTATION)
    yield from warnings.miner(config, 'loss.hard_example_miner')
    path = 'feature_extractor.conv_hyperparams.regularize_depthwise'
    yield from among(config, [path], _DEPTHWISE_PENALTY)
    yield from _predictor(config)
    if config.matcher.argmax_matcher.ignore_thresholds:
        thresholds = ('matched_threshold', 'unmatched_threshold')
        paths = [f'matcher.argmax_matcher.{name}' for name in thresholds]
        yield from among(config, paths, _NO_THRESHOLDS)
    if config.anchor_generator.ssd_anchor_generator.scales:
        paths = [f'{_ANCHORS}.min_scale', f'{_ANCHORS}.max_scale']
        yield from among(config, paths, _OWN_SCALES)
    yield from warnings.suppression(config, 'post_processing')


def _predictor(config: Ssd) -> Iterator[tuple[str, str]]:
    kind = config.box_predictor.WhichOneof('box_predictor_oneof')
    if kind is None:
        return
    predictor, path = getattr(config.box_predictor, kind), f'box_predictor.{kind}'
    if not predictor.use_dropout and is_set(config, f'{path}.dropout_keep_probability', 1.0):
        yield f'{path}.dropout_keep_probability', _NO_DROPOUT
    yield from among(config, [f'{path}.conv_hyperparams.regularize_depthwise'], _DEPTHWISE_PENALTY)
    if kind != 'convolutional_box_predictor':
        return
    if not predictor.max_depth and not predictor.min_depth:
        yield from among(config, [f'{path}.num_layers_before_predictor'], _NO_DEPTH)
    elif not predictor.num_layers_before_predictor:
        yield from among(config, [f'{path}.min_depth', f'{path}.max_depth'], _NO_LAYERS)
    if predictor.use_depthwise:
        yield from among(config, [f'{path}.class_prediction_bias_init'], _DEPTHWISE)


def find_untrained(config: Ssd) -> Iterator[str]:
    """Yields a sentence for each kind of layers that keeps its random weights in training."""
    if config.freeze_batchnorm:
        yield (
            f'{ROOT}.freeze_batchnorm is true, but there is no train_config.fine_tune_checkpoint: '
            'the batch norms keep a mean of 0 and a variance of 1.'
        )


def find_advice(config: Ssd) -> Iterator[str]:
    """Yields a sentence for each setting that makes detections of a new model worse."""
    loss = config.loss.classification_loss
    shared = config.box_predictor.weight_shared_convolutional_box_predictor
    yield from warnings.scores(
        config.post_processing,
        f'{ROOT}.post_processing',
        loss,
        f'{ROOT}.loss.classification_loss',
        converted=_CONVERTED if shared.score_converter == shared.SIGMOID else '',
    )
    if warnings.converter_of(loss) == PostProcessing.SOFTMAX:
        yield from _softmax_background(config, loss.WhichOneof('classification_loss'))
    yield from _spread(config)
    if not config.post_processing.batch_non_max_suppression.change_coordinate_frame:
        yield (
            f'{ROOT}.{_NMS}.change_coordinate_frame is false: boxes are relative to the padded '
            'image, which is wrong for images that are padded.'
        )


def _spread(config: Ssd) -> Iterator[str]:
    """Yields a sentence if anchors are spread over another area than the cells."""
    multiple, sides = padding_multiple(config), _fixed_sides(config.image_resizer)
    is_padded = not sides or any(side % multiple for side in sides)
    generator = config.anchor_generator
    has_strides = bool(generator.ssd_anchor_generator.height_stride)
    is_spread = generator.HasField('ssd_anchor_generator') and not has_strides
    if multiple > 1 and is_padded and is_spread:
        yield (
            f'{ROOT}.{_ANCHORS} spreads anchors over the image without the padding of '
            f'{ROOT}.feature_extractor.pad_to_multiple, as in the TensorFlow Object Detection API, '
            f'but cells are spread over both. Resize images to multiples of {multiple}, or set '
            'height_stride and width_stride.'
        )


def _fixed_sides(resizer: ImageResizer) -> list[int]:
    """Returns numbers that sides of all images are multiples of; empty if there are none."""
    kind = resizer.WhichOneof('image_resizer_oneof')
    option = getattr(resizer, kind or 'identity_resizer')
    if kind == 'keep_aspect_ratio_resizer' and option.pad_to_max_dimension:
        return [option.max_dimension]
    names = ('height', 'width', 'pad_height', 'pad_width', 'multiple')
    return [side for side in (getattr(option, name, 0) for name in names) if side]


def _softmax_background(config: Ssd, kind: str) -> Iterator[str]:
    has_column = config.add_background_class or config.explicit_background_class
    if config.encode_background_as_zeros or not has_column:
        field = 'encode_background_as_zeros: false' if has_column else 'add_background_class: true'
        yield (
            f'{ROOT}.loss.classification_loss.{kind} has no loss for an anchor without a class, so '
            f'that no background is learned; set {ROOT}.{field}.'
        )


def check(config: Ssd) -> Iterator[str]:
    """Yields one sentence per problem; loads TensorFlow."""
    from object_detection.builders import (
        anchor_generator_builder,
        box_coder_builder,
        image_resizer_builder,
        losses_builder,
        matcher_builder,
        post_processing_builder,
        region_similarity_calculator_builder,
    )
    from object_detection.meta_architectures.ssd.build import check

    for name, build in {
        'image_resizer': image_resizer_builder.build,
        'feature_extractor': check,
        'anchor_generator': anchor_generator_builder.build,
        'box_coder': box_coder_builder.build,
        'matcher': matcher_builder.build,
        'similarity_calculator': region_similarity_calculator_builder.build,
        'loss': losses_builder.build,
        'post_processing': post_processing_builder.build,
    }.items():
        yield from problems(build, getattr(config, name), f'{ROOT}.{name}')
    yield from _check_predictor(config)


def _check_predictor(config: Ssd) -> Iterator[str]:
    from object_detection.meta_architectures.ssd.build import build_predictor

    def build(message):
        return build_predictor(
            message,
            num_outputs=config.num_classes + config.add_background_class,
            num_anchors=[1],
            batch_norm_trainable=False,
        )

    yield from problems(build, config.box_predictor, f'{ROOT}.box_predictor')


_ROOT = 'model.ssd'
_MINER = (
    'It suppresses overlapping boxes of every image in every step, one after the other, and the '
    'TensorFlow Object Detection API has no such program for TPUs. The focal loss balances matched '
    'and unmatched anchors without it; set encode_background_as_zeros: true of the model and '
    'class_prediction_bias_init: -4.6 of the box predictor with it.'
)
_FOCAL = (
    'loss {{ classification_loss {{ weighted_sigmoid_focal {{ alpha: 0.25 gamma: 2.0 }} }} '
    'localization_loss {{ {localization} {{ }} }} classification_weight: {classes:g} '
    'localization_weight: {boxes:g} }}'
)
_CLIP = (
    'In bfloat16 a box code has three digits, and its exponential overflows where it diverges; a '
    'range keeps it small.'
)


def find_for_tpu(pipeline: TrainEvalPipelineConfig) -> Iterator[Finding]:
    """Yields findings about the message of the model; see `ModelFamily.tpu`."""
    config = pipeline.model.ssd
    if config.loss.HasField('hard_example_miner'):
        yield _miner(config)
    if findings.uses_bfloat16(pipeline.train_config):
        yield from _clipping(config)


def _miner(config: Ssd) -> Finding:
    loss = config.loss
    kind = loss.localization_loss.WhichOneof('localization_loss')
    write = _FOCAL.format(
        localization=kind or 'weighted_smooth_l1',
        classes=loss.classification_weight,
        boxes=loss.localization_weight,
    )
    return Finding(
        f'{_ROOT}.loss.hard_example_miner',
        findings.found(loss, 'hard_example_miner'),
        _MINER,
        write,
        is_obstacle=True,
    )


def _clipping(config: Ssd) -> Iterator[Finding]:
    """Yields a finding if box codes are computed in bfloat16 and have no range."""
    kind = config.box_predictor.WhichOneof('box_predictor_oneof')
    predictor = getattr(config.box_predictor, kind) if kind else None
    name = 'box_encodings_clip_range'
    if predictor is None or name not in predictor.DESCRIPTOR.fields_by_name:
        return
    if not predictor.HasField(name):
        path = f'{_ROOT}.box_predictor.{kind}.{name}'
        yield Finding(path, 'not set', _CLIP, f'{name} {{ min: -10.0 max: 10.0 }}')
