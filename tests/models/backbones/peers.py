"""Backbones with weights that follow from their names in transformers, and its recorded maps."""

import math
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tests import tolerances

# Numbers of a map that were recorded.
_NUM_PROJECTIONS = 6


class Case(NamedTuple):
    """A network that transformers was run with.

    Attributes:
      network: builds it.
      keys: names of its weights in transformers, of the backbone alone.
      translate: our names -> names there.
      size: height and width of the images.
      samples: of each map, its `projections`.
      scope: what the names begin with in a detector.
    """

    network: Callable[[], keras.Model]
    keys: Collection[str]
    translate: Callable[[Collection[str]], Mapping[str, str]]
    size: tuple[int, int]
    samples: Sequence[Sequence[float]]
    scope: str = 'model.backbone.model.'


def weight(key: str, shape: Sequence[int]) -> np.ndarray:
    """Returns float32 numbers for an array of PyTorch, [out, in, ...] if it is a kernel."""
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(key.encode())))
    normal = generator.standard_normal(tuple(shape), dtype=np.float32)
    end = key.rpartition('.')[2]
    if end == 'running_var':
        return 1 + np.abs(normal) * np.float32(0.1)
    if len(shape) > 1:
        return normal * np.float32(1.4 / math.sqrt(math.prod(shape[1:])))
    if end in ('weight', 'lambda1', 'scale'):
        return 1 + normal * np.float32(0.1)
    return normal * np.float32(0.1)


def images(size: tuple[int, int]) -> tf.Tensor:
    """Returns two images, float32 [2, H, W, 3] in 0..1."""
    pixels = np.random.default_rng(7).random((2, 3, *size), dtype=np.float32)
    return tf.constant(pixels.transpose(0, 2, 3, 1))


def ours(model: keras.Model) -> dict[str, keras.Variable]:
    return {variable.path.removeprefix(f'{model.name}/'): variable for variable in model.weights}


def build(case: Case) -> keras.Model:
    """Returns the network with the weights of its names, which are all that are to be found."""
    model = case.network()
    there = case.translate(case.keys)
    assert set(there) == set(ours(model))
    assert set(there.values()) == set(case.keys)
    in_detector = case.translate([f'{case.scope}{key}' for key in case.keys])
    assert in_detector == {name: f'{case.scope}{key}' for name, key in there.items()}
    for name, variable in ours(model).items():
        # Of kernels, PyTorch has the axes out, in, height, width.
        axes = {4: (3, 2, 0, 1), 2: (1, 0)}.get(len(variable.shape), range(len(variable.shape)))
        if name.endswith('depthwise_kernel'):
            axes = (2, 3, 0, 1)
        shape = [variable.shape[axis] for axis in axes]
        variable.assign(weight(there[name], shape).transpose(np.argsort(axes)))
    return model


def maps(model: keras.Model, pixels: tf.Tensor, **options: bool) -> list[tf.Tensor]:
    return tf.nest.flatten(model(pixels, **options))


def projections(map_: tf.Tensor) -> np.ndarray:
    """Returns sums of a map [B, H, W, C] with random factors, which see all of its numbers."""
    values = np.ravel(map_).astype(np.float64)
    factors = np.random.default_rng(8).standard_normal([_NUM_PROJECTIONS, values.size])
    return factors @ values / math.sqrt(values.size)


def check(case: Case) -> None:
    """Checks the maps that were recorded, up to the rounding of the network."""
    model, pixels = build(case), images(case.size)

    def run() -> dict[str, np.ndarray]:
        found = {}
        for i, each in enumerate(maps(model, pixels, training=False)):
            found[f'map {i}'] = projections(each)
        return found

    recorded = {f'map {i}': np.array(each) for i, each in enumerate(case.samples)}
    found = run()
    variables = {name: variable.value for name, variable in ours(model).items()}
    repeated = [*tolerances.runs_off_by_last_digits(variables, run)]
    allowed = tolerances.of_rounding(found, repeated)
    assert found.keys() == recorded.keys()
    assert not tolerances.differing(found, recorded, allowed)


def check_learning(model: keras.Model, size: tuple[int, int]) -> None:
    """Checks that all that is trainable has a gradient, and that a compiled pass is the same."""
    pixels = images(size)

    def loss(pixels: tf.Tensor) -> tf.Tensor:
        outputs = maps(model, pixels, training=True)
        return tf.add_n([tf.reduce_mean(tf.square(each)) for each in outputs])

    variables = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        total = loss(pixels)
    gradients = tape.gradient(total, variables)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.path
        assert np.isfinite(gradient).all(), variable.path
        assert np.any(gradient), variable.path
    compiled = tf.function(loss, jit_compile=True)(pixels)
    np.testing.assert_allclose(compiled, total, rtol=1e-4)


def check_bfloat16(plain: keras.Model, mixed: keras.Model, size: tuple[int, int]) -> None:
    """Checks a network that computes in bfloat16 by the same in float32."""
    for variable, other in zip(mixed.weights, plain.weights, strict=True):
        variable.assign(other)
    pixels = images(size)
    outputs = [maps(model, pixels, training=False) for model in (mixed, plain)]
    for found, exact in zip(*outputs, strict=True):
        assert found.dtype == tf.bfloat16
        off = tf.cast(found, tf.float32) - exact
        # A last digit of bfloat16 is 1/256; errors of dozens of layers add up like noise.
        assert float(tf.norm(off)) < 0.1 * float(tf.norm(exact))
