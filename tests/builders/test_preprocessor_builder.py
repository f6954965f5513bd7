import pytest
from google.protobuf import text_format

from object_detection.builders import preprocessor_builder
from object_detection.config import unsupported
from object_detection.data.augmentation.symmetry import RandomHorizontalFlip
from object_detection.protos import preprocessor_pb2
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig


def test_builds_a_flip():
    step = preprocessor_pb2.PreprocessingStep()
    step.random_horizontal_flip.SetInParent()
    assert isinstance(preprocessor_builder.build(step), RandomHorizontalFlip)


def test_other_steps_are_rejected_by_name():
    step = preprocessor_pb2.PreprocessingStep()
    step.scale_boxes_to_pixel_coordinates.SetInParent()
    with pytest.raises(ValueError, match='scale_boxes_to_pixel_coordinates'):
        preprocessor_builder.build(step)
    with pytest.raises(ValueError, match='preprocessing_step is not set'):
        preprocessor_builder.build(preprocessor_pb2.PreprocessingStep())


def test_the_steps_of_the_published_configs_are_built(shared):
    paths = sorted((shared / 'reference' / 'configs').rglob('*.config'))
    steps = [
        step
        for path in paths
        for step in text_format.Parse(
            path.read_text(), TrainEvalPipelineConfig(), allow_unknown_field=True
        ).train_config.data_augmentation_options
    ]
    assert len(steps) > 200
    distinct = {step.SerializeToString(): step for step in steps}.values()
    names = {step.WhichOneof('preprocessing_step') for step in distinct}
    assert {'ssd_random_crop', 'random_crop_image', 'random_absolute_pad_image'} <= names
    for step in distinct:
        preprocessor_builder.build(step)


def test_every_step_is_built_or_rejected():
    options = preprocessor_pb2.PreprocessingStep.DESCRIPTOR.oneofs[0].fields
    listed = {key.partition('.')[2] for key in unsupported.FIELDS if 'PreprocessingStep.' in key}
    names = {field.name for field in options}
    assert names == preprocessor_builder.BUILDERS.keys() | (listed & names)
    assert not preprocessor_builder.BUILDERS.keys() & listed
