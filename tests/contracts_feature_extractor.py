"""What every feature extractor must do, and what those of Faster R-CNN must do besides."""

import keras
import numpy as np
import tensorflow as tf

from object_detection.meta_architectures.faster_rcnn.feature_extractor import (
    TwoStageFeatureExtractor,
)
from object_detection.models.feature_extractor import FeatureExtractor


def check_feature_extractor(extractor: TwoStageFeatureExtractor, *, crop_size: int = 7) -> None:
    """Asserts what `check_stacks` does, of one stack, and what is made of crops."""
    assert extractor.num_stacks == 1
    channels = extractor.empty_features(32)[0].shape[-1]
    _check_crops(
        extractor, tf.random.stateless_uniform([3, crop_size, crop_size, channels], [3, 4])
    )
    check_stacks(extractor)


def check_stacks(extractor: FeatureExtractor) -> None:
    """Asserts shapes, dtypes, names and modes of `extractor`, at odd and unknown image sizes."""
    assert extractor.num_levels == len(extractor.strides)
    images = tf.random.stateless_uniform([2, 70, 45, 3], [1, 2], maxval=255.0)
    _check_normalize(extractor, images)
    images = extractor.normalize(images)
    stacks = extractor.feature_stacks(images)
    assert len(stacks) == extractor.num_stacks
    for maps in stacks:
        _check_maps(extractor, maps)
    _check_unknown_sizes(extractor, images, stacks)
    _check_variables(extractor)


def check_propagates_sums(slim: FeatureExtractor, ours: FeatureExtractor) -> None:
    """Asserts how a pyramid of TensorFlow 1, of the levels 3 to 7, differs from that of TF 2."""
    weights = {variable.path: variable for variable in slim.variables}
    assert weights.keys() == {variable.path for variable in ours.variables}
    for variable in ours.variables:
        if variable.name == 'bias':  # of projections, so that the top is not nearly zero
            weights[variable.path].assign(tf.ones(variable.shape))
        variable.assign(weights[variable.path])
    images = tf.random.stateless_normal([1, 64, 64, 3], [1, 2])
    (theirs,), (maps,) = slim.feature_stacks(images), ours.feature_stacks(images)
    # The map below the unsmoothed top is the first one that is propagated.
    for their_map, our_map in zip(theirs[1:], maps[1:], strict=True):
        np.testing.assert_allclose(their_map, our_map, rtol=1e-5, atol=1e-9)
    assert np.abs(theirs[0] - maps[0]).max() > 1e-2 * np.abs(maps[0]).max()


def _check_normalize(extractor: FeatureExtractor, images: tf.Tensor) -> None:
    normalized = extractor.normalize(images)
    assert normalized.dtype == tf.float32
    assert normalized.shape == images.shape


def _check_maps(extractor: FeatureExtractor, maps: list[tf.Tensor]) -> None:
    assert isinstance(maps, list)
    assert len(maps) == extractor.num_levels
    multiple = extractor.pad_to_multiple
    height, width = (-(-size // multiple) * multiple for size in (70, 45))
    for level, stride in zip(maps, extractor.strides, strict=True):
        assert level.shape[:3] == (2, -(-height // stride), -(-width // stride))
        assert level.dtype == keras.config.dtype_policy().compute_dtype
        assert np.isfinite(tf.cast(level, tf.float32)).all()


def _check_unknown_sizes(
    extractor: FeatureExtractor, images: tf.Tensor, stacks: list[list[tf.Tensor]]
) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3])], autograph=False)
    def traced(images):
        return extractor.feature_stacks(images)

    if stacks[0][0].dtype != tf.float32:
        # Graphs round to 16 bits at other places than eager execution does.
        stacks = tf.function(extractor.feature_stacks, autograph=False)(images)
    found = tf.nest.flatten(traced(images))
    for ours, level in zip(found, tf.nest.flatten(stacks), strict=True):
        scale = np.abs(tf.cast(level, tf.float32)).max()
        tolerance = 1e-5 if level.dtype == tf.float32 else 2e-2
        np.testing.assert_allclose(
            tf.cast(ours, tf.float32), tf.cast(level, tf.float32), atol=tolerance * scale
        )


def _check_crops(extractor: TwoStageFeatureExtractor, crops: tf.Tensor) -> None:
    features = extractor.box_classifier_features(crops)
    assert features.shape.rank == 4
    assert features.shape[0] == 3


def _check_variables(extractor: FeatureExtractor) -> None:
    names = [
        f'{part}/{variable.path.removeprefix(part + "/")}'
        for part, layer in extractor.parts().items()
        for variable in layer.variables
    ]
    assert len(names) == len(set(names)) == len(extractor.variables)
    assert all(variable.dtype == 'float32' for variable in extractor.variables)
