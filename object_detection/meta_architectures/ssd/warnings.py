"""Settings of a single-shot detector that are rarely meant, and what it needs on a TPU."""

from collections.abc import Iterator

from object_detection.config import findings, warnings
from object_detection.config.findings import Finding
from object_detection.meta_architectures.ssd.rules import ROOT, padding_multiple
from object_detection.protos.image_resizer_pb2 import ImageResizer
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.post_processing_pb2 import PostProcessing
from object_detection.protos.ssd_pb2 import Ssd

_NMS = 'post_processing.batch_non_max_suppression'
_ANCHORS = 'anchor_generator.ssd_anchor_generator'
_CONVERTED = f'{ROOT}.box_predictor.weight_shared_convolutional_box_predictor.score_converter'


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
