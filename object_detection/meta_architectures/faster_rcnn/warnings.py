"""Settings of a Faster R-CNN that are rarely meant, and what it needs on a TPU.

Mask R-CNN and R-FCN are configured by the same message.
"""

from collections.abc import Iterator

from object_detection.config import findings, warnings
from object_detection.config.findings import Finding
from object_detection.meta_architectures.faster_rcnn import rules
from object_detection.protos.faster_rcnn_pb2 import FasterRcnn, RoiAlign
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

_NO_CROWDS = 'train_input_reader.skip_crowd leaves crowds out'


def find(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str, str]]:
    """Yields fields that another part of the config leaves idle; see `ModelFamily.unread`."""
    config = pipeline.model.faster_rcnn
    if pipeline.train_input_reader.skip_crowd and config.first_stage_crowd_ioa_threshold:
        path = f'{rules.ROOT}.first_stage_crowd_ioa_threshold'
        yield 'train_input_reader', path, _NO_CROWDS


def find_untrained(config: FasterRcnn) -> Iterator[str]:
    """Yields a sentence for each kind of layers that keeps its random weights in training."""
    extractor, path = config.feature_extractor, f'{rules.ROOT}.feature_extractor'
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
            f'{rules.ROOT}.second_stage_post_processing',
            config.second_stage_classification_loss,
            f'{rules.ROOT}.second_stage_classification_loss',
        )
    if (
        config.number_of_stages == 3
        and rules.has_pyramid(config.feature_extractor)
        and not rules.predicts_masks_from_crops(config)
    ):
        yield (
            f'{rules.ROOT}.masks_from_crops is false: masks are predicted from the vector '
            'that classifies a box, as in the TensorFlow Object Detection API, whose checkpoints '
            'need it. For a new model set it to true: the crops of the feature pyramid tell where '
            'in the box something is.'
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
