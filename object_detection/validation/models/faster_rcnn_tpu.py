"""What a Faster R-CNN, Mask R-CNN or R-FCN needs on a TPU beyond the rules for all families."""

from collections.abc import Iterator

from object_detection.builders.faster_rcnn import rules
from object_detection.config import findings
from object_detection.config.findings import Finding
from object_detection.protos.faster_rcnn_pb2 import FasterRcnn, RoiAlign
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

_STATIC = (
    'The training step of this program has fixed shapes without it; the TensorFlow Object '
    'Detection API needs it, and so does use_static_balanced_label_sampler.'
)
_SAMPLER = (
    'The samplers of the TensorFlow Object Detection API for TPUs need it; with it, other rows '
    'make up for missing samples, as in the published recipes for TPUs.'
)
_GATHER = 'Targets are gathered row by row; a product of matrices is faster on a TPU.'
_CROPS = 'Regions are cropped by index; products of matrices are faster on a TPU.'
_MINER = (
    'It suppresses overlapping boxes of every image in every step, one after the other, and the '
    'TensorFlow Object Detection API has no such program for TPUs. Without it, '
    'second_stage_batch_size and second_stage_balance_fraction draw a sample.'
)


def find(pipeline: TrainEvalPipelineConfig) -> Iterator[Finding]:
    """Yields findings about the message of the model; see `FamilyRules.tpu`."""
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
        yield from findings.of_flag(config, rules.ROOT, 'use_matmul_crop_and_resize', _CROPS)
