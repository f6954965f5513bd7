"""Finds what in a config does not fit a TPU, or is slow or inaccurate there; loads no TensorFlow.

The rules are those of the TensorFlow Object Detection API's page about TPUs and of its published
configs for them, as far as they hold for this package too. Each finding says what to write instead.
"""

from collections.abc import Iterator

from object_detection.config.findings import Finding, found, of_flag, of_model, uses_bfloat16
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.validation import cautions, tpu_recipe
from object_detection.validation.models import families as model_rules

_BUCKETS = (
    'The batches have {count} sizes of images, and a TPU compiles a program for fixed shapes. '
    'Remove the buckets, and let the resizer of the model pad all images to one size.'
)
_NUM_BOXES = (
    'The number of rows of the ground truth is fixed by it, and an image with more objects loses '
    'the rest, which the training reports; choose it from the data.{deprecated}'
)
_DEPRECATED = ' train_config.max_number_of_boxes is not read.'
_REMAINDER = 'The last batch would have another size, and a TPU compiles a program for one.'
_UNPAD = (
    'It has no effect here, where ground truth always stays padded; the TensorFlow Object '
    'Detection API needs false on TPUs.'
)
_FLOAT16 = 'TPUs have no float16; bfloat16 needs no loss_scale.'
_BFLOAT16 = (
    'The matrix units of a TPU compute products of bfloat16; in float32 they take several passes '
    'for each product, and activations take twice the memory.'
)
_EVALUATION = (
    'Batches are filled up with empty images to a multiple of the {cores} cores, which share them.'
)


def find(pipeline: TrainEvalPipelineConfig, *, cores: int = 8) -> list[Finding]:
    """Returns what does not fit a TPU of so many cores; obstacles come first.

    Args:
      pipeline: the config with overrides applied; the files that it names are not read.
      cores: number of cores, each of which computes the same share of a batch.
    """
    findings = list(of_model(pipeline.model))
    rules = model_rules.find(pipeline.model)
    if rules is not None:
        findings += rules.tpu(pipeline)
    findings += _readers(pipeline)
    if pipeline.HasField('train_config'):
        findings += _training(pipeline.train_config)
        findings += tpu_recipe.find(pipeline.train_config, cores)
    if pipeline.eval_input_reader and pipeline.eval_config.batch_size % cores:
        findings.append(
            Finding(
                'eval_config.batch_size',
                found(pipeline.eval_config, 'batch_size'),
                _EVALUATION.format(cores=cores),
                f'batch_size: {cores}',
            )
        )
    return sorted(findings, key=lambda finding: not finding.is_obstacle)


def _readers(pipeline: TrainEvalPipelineConfig) -> Iterator[Finding]:
    parts = ('train_input_reader', 'eval_input_reader')
    for path, reader in cautions.readers(pipeline, parts):
        if path == parts[0] and not pipeline.HasField(path):
            continue
        if reader.aspect_ratio_buckets:
            yield Finding(
                f'{path}.aspect_ratio_buckets',
                f'{len(reader.aspect_ratio_buckets)} buckets',
                _BUCKETS.format(count=len(reader.aspect_ratio_buckets)),
                '',
                is_obstacle=True,
            )
        if not reader.HasField('max_number_of_boxes'):
            is_training = path == parts[0]
            has_old = is_training and pipeline.train_config.HasField('max_number_of_boxes')
            yield Finding(
                f'{path}.max_number_of_boxes',
                found(reader, 'max_number_of_boxes'),
                _NUM_BOXES.format(deprecated=_DEPRECATED if has_old else ''),
                f'max_number_of_boxes: {reader.max_number_of_boxes}',
            )
        if path == parts[0] and not reader.drop_remainder:
            yield Finding(
                f'{path}.drop_remainder', 'false', _REMAINDER, 'drop_remainder: true', True
            )


def _training(config: TrainConfig) -> Iterator[Finding]:
    if config.precision == TrainConfig.MIXED_FLOAT16:
        yield Finding(
            'train_config.precision', 'MIXED_FLOAT16', _FLOAT16, 'precision: MIXED_BFLOAT16', True
        )
    elif not uses_bfloat16(config):
        yield from of_flag(config, 'train_config', 'use_bfloat16', _BFLOAT16)
    if config.unpad_groundtruth_tensors:
        yield Finding(
            'train_config.unpad_groundtruth_tensors',
            found(config, 'unpad_groundtruth_tensors'),
            _UNPAD,
            'unpad_groundtruth_tensors: false',
        )
