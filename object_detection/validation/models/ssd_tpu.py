"""What a single-shot detector needs on a TPU beyond the rules for all families."""

from collections.abc import Iterator

from object_detection.config import findings
from object_detection.config.findings import Finding
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.ssd_pb2 import Ssd

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


def find(pipeline: TrainEvalPipelineConfig) -> Iterator[Finding]:
    """Yields findings about the message of the model; see `FamilyRules.tpu`."""
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
