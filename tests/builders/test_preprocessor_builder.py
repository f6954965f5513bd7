import pytest
from google.protobuf import text_format

from object_detection.builders import preprocessor_builder
from object_detection.data.augmentation.symmetry import RandomHorizontalFlip
from object_detection.protos import preprocessor_pb2
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from tests import rows
from tests.schema import unread_fields


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
    listed = {key.partition('.')[2] for key in unread_fields() if 'PreprocessingStep.' in key}
    names = {field.name for field in options} - {'plugin'}
    assert names == preprocessor_builder.AUGMENTATIONS.keys() | (listed & names)
    assert not preprocessor_builder.AUGMENTATIONS.keys() & listed


# Fields that count or name what is there, and need no bound.
_UNBOUNDED = (
    'label',
    'max_objects',
    'max_patch_size',
    'max_target_pixels',
    'new_label',
    'original_labels',
)
_FIELDS = preprocessor_builder.FIELDS | {
    'random_pad_image': (
        'min_image_height: 1 min_image_width: 1 max_image_height: 9 max_image_width: 9'
    )
}


@rows.parametrize('kind', preprocessor_builder.kinds())
def test_numbers_that_no_image_can_have_are_refused(kind):
    """NaN and infinity everywhere, and sizes that would fill the memory."""
    for field in getattr(preprocessor_builder.build_sample_steps(kind), kind).DESCRIPTOR.fields:
        if field.cpp_type == field.CPPTYPE_FLOAT:
            values, message = ('nan', 'inf', '-inf'), f'{field.name}.*: expected a finite number'
        elif field.cpp_type == field.CPPTYPE_INT32 and field.name not in _UNBOUNDED:
            values, message = (2**31 - 1,), 'xpected .* Received: .*(2147483647|2.14748e)'
        else:
            continue
        for value in values:
            step = preprocessor_builder.build_sample_steps(kind, _FIELDS)
            text = f'{kind} {{ {field.name}: {value} }}'
            if field.is_repeated:
                getattr(step, kind).ClearField(field.name)
            step.MergeFrom(text_format.Parse(text, preprocessor_pb2.PreprocessingStep()))
            with pytest.raises(ValueError, match=message):
                preprocessor_builder.build(step)
