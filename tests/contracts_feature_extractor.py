"""What every feature extractor of Faster R-CNN must do."""

import keras
import numpy as np
import tensorflow as tf

from object_detection.models.feature_extractors.two_stage import FeatureExtractor


def check_feature_extractor(extractor: FeatureExtractor, *, crop_size: int = 7) -> None:
    """Asserts shapes, dtypes, names and modes of `extractor`, at odd and unknown image sizes."""
    assert extractor.num_levels == len(extractor.strides)
    images = tf.random.stateless_uniform([2, 70, 45, 3], [1, 2], maxval=255.0)
    _check_normalize(extractor, images)
    images = extractor.normalize(images)
    maps = extractor.proposal_features(images)
    _check_maps(extractor, maps)
    _check_unknown_sizes(extractor, images, maps)
    crops = tf.random.stateless_uniform([3, crop_size, crop_size, maps[0].shape[-1]], [3, 4])
    _check_crops(extractor, crops)
    _check_variables(extractor)


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
    extractor: FeatureExtractor, images: tf.Tensor, maps: list[tf.Tensor]
) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3])])
    def traced(images):
        return extractor.proposal_features(images)

    if maps[0].dtype != tf.float32:
        # Graphs round to 16 bits at other places than eager execution does.
        maps = tf.function(extractor.proposal_features)(images)
    for ours, level in zip(traced(images), maps, strict=True):
        scale = np.abs(tf.cast(level, tf.float32)).max()
        tolerance = 1e-5 if level.dtype == tf.float32 else 2e-2
        np.testing.assert_allclose(
            tf.cast(ours, tf.float32), tf.cast(level, tf.float32), atol=tolerance * scale
        )


def _check_crops(extractor: FeatureExtractor, crops: tf.Tensor) -> None:
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
