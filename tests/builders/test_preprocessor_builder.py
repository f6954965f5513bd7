import pytest

from object_detection.builders import preprocessor_builder
from object_detection.data.augmentation.flip import RandomHorizontalFlip
from object_detection.protos import preprocessor_pb2


def test_builds_a_flip():
    step = preprocessor_pb2.PreprocessingStep()
    step.random_horizontal_flip.SetInParent()
    assert isinstance(preprocessor_builder.build(step), RandomHorizontalFlip)


def test_other_steps_are_rejected_by_name():
    step = preprocessor_pb2.PreprocessingStep()
    step.random_crop_image.SetInParent()
    with pytest.raises(ValueError, match='random_crop_image'):
        preprocessor_builder.build(step)
    with pytest.raises(ValueError, match='preprocessing_step is not set'):
        preprocessor_builder.build(preprocessor_pb2.PreprocessingStep())
